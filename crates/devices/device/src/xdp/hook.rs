//! Attaches a device at the earliest hook that the interface supports, and records why earlier ones
//! failed.

use std::fmt;

use aya::{
    Ebpf, EbpfLoader,
    programs::{
        ProgramInfo, Xdp, XdpMode,
        links::FdLink,
        tc::{SchedClassifierLink, TcAttachType, qdisc_add_clsact},
        xdp::XdpLink,
    },
};

use crate::xdp::{Device, XdpError, object};

/// Hook in the kernel's path of received frames, earliest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// XDP in the driver, before the kernel creates a packet buffer.
    Native,
    /// Generic XDP, after the driver. Works with every interface.
    Generic,
    /// tc ingress.
    Traffic,
}

impl Hook {
    /// All hooks, in the order in which they are tried.
    pub const ALL: [Self; 3] = [Self::Native, Self::Generic, Self::Traffic];

    /// Returns the name of the hook's pin.
    pub(crate) const fn pin_name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Traffic => "traffic",
        }
    }

    /// Returns the name shown to users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native XDP",
            Self::Generic => "generic XDP",
            Self::Traffic => "tc",
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

/// A device attached to an interface. Dropping this detaches the device, unless its link is pinned.
pub struct AttachedDevice {
    pub hook: Hook,
    /// Earlier hooks that failed, with the reasons.
    pub failed_hooks: Vec<(Hook, XdpError)>,
    pub(crate) link: AttachmentLink,
}

pub(crate) enum AttachmentLink {
    /// A link file, which can be pinned.
    File(FdLink),
    /// XDP link on a kernel without link files. It ends with the process.
    Xdp(#[allow(dead_code, reason = "it is held")] XdpLink),
    /// tc link on a kernel without link files. It ends with the process.
    Traffic(#[allow(dead_code, reason = "it is held")] SchedClassifierLink),
}

impl fmt::Display for AttachedDevice {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}", self.hook)?;
        for (hook, why) in &self.failed_hooks {
            write!(to, "; not {hook}: {why}")?;
        }
        Ok(())
    }
}

impl Device {
    /// Attaches the device to an interface, at the first of `hooks` that accepts it.
    pub fn attach(&mut self, interface: &str, hooks: &[Hook]) -> Result<AttachedDevice, XdpError> {
        let mut passed_over = Vec::new();
        for hook in hooks {
            match self.attach_to_hook(interface, *hook) {
                Ok(link) => {
                    return Ok(AttachedDevice { hook: *hook, failed_hooks: passed_over, link });
                }
                // A later hook would receive only the frames that this program passes on.
                Err(why) if why.is_hook_busy() => {
                    return Err(XdpError::HookBusy {
                        interface: interface.to_owned(),
                        hook: *hook,
                    });
                }
                Err(why) => passed_over.push((*hook, why)),
            }
        }
        let last = passed_over.pop().map(|(_, why)| why);
        Err(last.unwrap_or_else(|| XdpError::MalformedObject("no hook was asked for".to_owned())))
    }

    fn attach_to_hook(&mut self, interface: &str, hook: Hook) -> Result<AttachmentLink, XdpError> {
        match hook {
            Hook::Native => attach_xdp(self.programs.xdp_mut()?, interface, XdpMode::Driver),
            Hook::Generic => attach_xdp(self.programs.xdp_mut()?, interface, XdpMode::Skb),
            Hook::Traffic => {
                // Kernels before 6.6 need the qdisc. The call fails if it already exists.
                let _ = qdisc_add_clsact(interface);
                let program = self.programs.traffic_mut()?;
                let id = program.attach(interface, TcAttachType::Ingress)?;
                Ok(match FdLink::try_from(program.take_link(id)?) {
                    Ok(link) => AttachmentLink::File(link),
                    Err(_) => {
                        // The failed conversion consumed the link and thereby removed the filter,
                        // so attach it again and keep the link.
                        let id = program.attach(interface, TcAttachType::Ingress)?;
                        AttachmentLink::Traffic(program.take_link(id)?)
                    }
                })
            }
        }
    }
}

fn attach_xdp(
    program: &mut Xdp,
    interface: &str,
    mode: XdpMode,
) -> Result<AttachmentLink, XdpError> {
    let id = program.attach(interface, mode)?;
    Ok(match FdLink::try_from(program.take_link(id)?) {
        Ok(link) => AttachmentLink::File(link),
        Err(_) => {
            let id = program.attach(interface, mode)?;
            AttachmentLink::Xdp(program.take_link(id)?)
        }
    })
}

/// A program that passes every frame. Native XDP on one end of a veth pair can send frames only if
/// the other end has one.
pub struct PassProgram {
    programs: Ebpf,
}

impl PassProgram {
    /// Attaches the program to an interface until it is dropped.
    pub fn attach(interface: &str) -> Result<Self, XdpError> {
        let mut programs = EbpfLoader::new().load(object::PASS_OBJECT)?;
        let program = programs.program_mut("pass").ok_or(XdpError::MismatchedAnswer)?;
        let program = <&mut Xdp>::try_from(program)?;
        program.load()?;
        program.attach(interface, XdpMode::Driver)?;
        Ok(Self { programs })
    }

    pub fn info(&self) -> Result<ProgramInfo, XdpError> {
        let program = self.programs.program("pass").ok_or(XdpError::MismatchedAnswer)?;
        let program = <&Xdp>::try_from(program)?;
        Ok(program.info()?)
    }
}
