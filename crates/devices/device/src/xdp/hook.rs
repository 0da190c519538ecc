//! Attachment of a device: the earliest hook that the interface takes, and why it is not an earlier
//! one.

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

use crate::xdp::{Device, Failed, object};

/// A place in the kernel where frames of an interface come by, the earliest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// XDP in the driver: before the kernel has made a packet of a frame.
    Native,
    /// XDP for every interface: behind the driver.
    Generic,
    /// tc.
    Traffic,
}

impl Hook {
    /// The order in which they are tried.
    pub const ALL: [Self; 3] = [Self::Native, Self::Generic, Self::Traffic];

    /// As its pin has it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Traffic => "traffic",
        }
    }

    /// Returns its name for people.
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

/// A device on an interface. When it is dropped, the device receives no more frames; the link of a
/// pinned one stays.
pub struct Attached {
    /// Where.
    pub hook: Hook,
    /// Earlier hooks, and why not there.
    pub passed_over: Vec<(Hook, Failed)>,
    pub(crate) link: Link,
}

/// Link that keeps it there.
pub(crate) enum Link {
    /// A file: it can be pinned.
    File(FdLink),
    /// Link of kernels without link files; it ends with the process.
    Xdp(#[allow(dead_code, reason = "it is held")] XdpLink),
    /// As above.
    Traffic(#[allow(dead_code, reason = "it is held")] SchedClassifierLink),
}

impl fmt::Display for Attached {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}", self.hook)?;
        for (hook, why) in &self.passed_over {
            write!(to, "; not {hook}: {why}")?;
        }
        Ok(())
    }
}

impl Device {
    /// Attaches the device to an interface, by the first of these hooks that takes it.
    pub fn attach(&mut self, interface: &str, hooks: &[Hook]) -> Result<Attached, Failed> {
        let mut passed_over = Vec::new();
        for hook in hooks {
            match self.attach_at(interface, *hook) {
                Ok(link) => {
                    return Ok(Attached { hook: *hook, passed_over, link });
                }
                // A later hook would work, and see only what the program at this one passes.
                Err(why) if why.is_busy() => {
                    return Err(Failed::Busy { interface: interface.to_owned(), hook: *hook });
                }
                Err(why) => passed_over.push((*hook, why)),
            }
        }
        let last = passed_over.pop().map(|(_, why)| why);
        Err(last.unwrap_or_else(|| Failed::Object("no hook was asked for".to_owned())))
    }

    fn attach_at(&mut self, interface: &str, hook: Hook) -> Result<Link, Failed> {
        match hook {
            Hook::Native => attach_xdp(self.programs.xdp_mut()?, interface, XdpMode::Driver),
            Hook::Generic => attach_xdp(self.programs.xdp_mut()?, interface, XdpMode::Skb),
            Hook::Traffic => {
                // Kernels before 6.6 want it, and say so if it is there already.
                let _ = qdisc_add_clsact(interface);
                let program = self.programs.traffic_mut()?;
                let id = program.attach(interface, TcAttachType::Ingress)?;
                Ok(match FdLink::try_from(program.take_link(id)?) {
                    Ok(link) => Link::File(link),
                    Err(_) => {
                        // The conversion has eaten the link, and with it the filter: once more, and
                        // held.
                        let id = program.attach(interface, TcAttachType::Ingress)?;
                        Link::Traffic(program.take_link(id)?)
                    }
                })
            }
        }
    }
}

fn attach_xdp(program: &mut Xdp, interface: &str, mode: XdpMode) -> Result<Link, Failed> {
    let id = program.attach(interface, mode)?;
    Ok(match FdLink::try_from(program.take_link(id)?) {
        Ok(link) => Link::File(link),
        Err(_) => {
            let id = program.attach(interface, mode)?;
            Link::Xdp(program.take_link(id)?)
        }
    })
}

/// Takes nothing at an interface: the other end of a veth pair, whose programs send frames back.
pub struct Passing {
    programs: Ebpf,
}

impl Passing {
    /// Attaches to this interface, until it is dropped.
    pub fn attach(interface: &str) -> Result<Self, Failed> {
        let mut programs = EbpfLoader::new().load(object::PASS)?;
        let program = programs.program_mut("pass").ok_or(Failed::Answer)?;
        let program = <&mut Xdp>::try_from(program)?;
        program.load()?;
        program.attach(interface, XdpMode::Driver)?;
        Ok(Self { programs })
    }

    /// Returns the kernel's information on it.
    pub fn info(&self) -> Result<ProgramInfo, Failed> {
        let program = self.programs.program("pass").ok_or(Failed::Answer)?;
        let program = <&Xdp>::try_from(program)?;
        Ok(program.info()?)
    }
}
