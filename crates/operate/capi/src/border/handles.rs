//! Table of the objects to which C programs hold handles.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use super::deliver::DeliverCallback;
use crate::{
    error::{Code, Failed},
    handle::Handle,
    options::Options,
};

/// Target type of the pointers `quorate` and `quorate_options` of `quorate.h`. It has no values.
#[derive(Debug)]
#[repr(C)]
pub struct Opaque([u8; 0]);

pub(super) enum Object {
    Options(Box<Mutex<Options>>),
    Handle(Box<OpenHandle>),
}

/// An open node or client, and the callback that receives its values if there is one.
pub(super) struct OpenHandle {
    pub(super) handle: Handle,
    callback: Mutex<Option<DeliverCallback>>,
    /// Version of the callback, incremented with each change.
    callback_version: AtomicU64,
}

impl OpenHandle {
    pub(super) fn new(handle: Handle) -> Self {
        Self { handle, callback: Mutex::default(), callback_version: AtomicU64::new(0) }
    }

    pub(super) fn callback(&self) -> Option<DeliverCallback> {
        *self.callback.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the callback if it has changed since `version`, and updates `version`.
    pub(super) fn callback_since(&self, version: &mut u64) -> Option<Option<DeliverCallback>> {
        let now = self.callback_version.load(Ordering::Acquire);
        (std::mem::replace(version, now) != now).then(|| self.callback())
    }

    pub(super) fn set_callback(&self, deliver: Option<DeliverCallback>) {
        *self.callback.lock().unwrap_or_else(PoisonError::into_inner) = deliver;
        self.callback_version.fetch_add(1, Ordering::Release);
    }
}

type ObjectTable = RwLock<HashMap<usize, Arc<Object>>>;

fn object_table() -> &'static ObjectTable {
    static TABLE: OnceLock<ObjectTable> = OnceLock::new();
    TABLE.get_or_init(ObjectTable::default)
}

/// Adds an object to the table and returns its handle, a number that has not been used before and
/// is not the address of any object.
pub(super) fn insert(object: Object) -> *mut Opaque {
    // Odd, so that it is never the address of a C object.
    static NEXT: AtomicUsize = AtomicUsize::new(0x5155_0001);
    let number = NEXT.fetch_add(16, Ordering::Relaxed);
    let mut table = object_table().write().unwrap_or_else(PoisonError::into_inner);
    table.insert(number, Arc::new(object));
    std::ptr::without_provenance_mut(number)
}

fn invalid_handle() -> Failed {
    Failed::new(Code::Invalid, "the handle is null, closed, or of another kind")
}

fn find(handle: *const Opaque) -> Result<Arc<Object>, Failed> {
    let table = object_table().read().unwrap_or_else(PoisonError::into_inner);
    table.get(&handle.addr()).map(Arc::clone).ok_or_else(invalid_handle)
}

/// Calls `with` on the options behind a handle while they are locked.
pub(super) fn with_options<T>(
    handle: *const Opaque,
    with: impl FnOnce(&mut Options) -> Result<T, Failed>,
) -> Result<T, Failed> {
    match &*find(handle)? {
        Object::Options(options) => {
            with(&mut options.lock().unwrap_or_else(PoisonError::into_inner))
        }
        Object::Handle(_) => Err(invalid_handle()),
    }
}

/// Calls `with` on the open node or client behind a handle. The object outlives the call, even if
/// another thread closes the handle during the call.
pub(super) fn open<T>(
    handle: *const Opaque,
    with: impl FnOnce(&OpenHandle) -> Result<T, Failed>,
) -> Result<T, Failed> {
    match &*find(handle)? {
        Object::Handle(open) => with(open),
        Object::Options(_) => Err(invalid_handle()),
    }
}

/// Removes an object from the table, if `wanted` accepts it.
pub(super) fn remove(
    handle: *const Opaque,
    wanted: impl FnOnce(&Object) -> Result<(), Failed>,
) -> Result<Arc<Object>, Failed> {
    let mut table = object_table().write().unwrap_or_else(PoisonError::into_inner);
    wanted(table.get(&handle.addr()).ok_or_else(invalid_handle)?)?;
    table.remove(&handle.addr()).ok_or_else(invalid_handle)
}

/// Fails unless the object is a set of options.
pub(super) fn require_options(object: &Object) -> Result<(), Failed> {
    match object {
        Object::Options(_) => Ok(()),
        Object::Handle(_) => Err(invalid_handle()),
    }
}

/// Fails unless the object is an open handle and the calling thread is outside its callbacks.
pub(super) fn require_closable(object: &Object) -> Result<(), Failed> {
    match object {
        Object::Handle(open) if open.handle.is_in_callback() => {
            Err(Failed::new(Code::InUse, "it is in a callback on this thread"))
        }
        Object::Handle(_) => Ok(()),
        Object::Options(_) => Err(invalid_handle()),
    }
}
