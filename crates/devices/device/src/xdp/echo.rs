//! An echo in the kernel, without a protocol: what a device could be at best.

use aya::{
    Ebpf, EbpfLoader,
    programs::{
        SchedClassifier, Xdp, XdpMode,
        tc::{TcAttachType, qdisc_add_clsact},
    },
};

use crate::xdp::{Failed, Hook, object};

/// Frames of this EtherType come back.
pub const ECHO_ETHER_TYPE: u16 = 0x88b5;
/// Datagrams of IPv4 to this port come back.
pub const ECHO_PORT: u16 = 7462;

/// Sends back, at an interface, what is meant for it, until it goes.
pub struct Echo {
    _programs: Ebpf,
}

impl Echo {
    /// Attaches at this hook of this interface. At one end of a veth pair [`Hook::Native`] needs
    /// [`Passing`](crate::xdp::Passing) at the other one.
    pub fn attach(interface: &str, hook: Hook) -> Result<Self, Failed> {
        let mut programs = EbpfLoader::new().load(object::ECHO)?;
        match hook {
            Hook::Native | Hook::Generic => {
                let program = programs.program_mut("echo_early").ok_or(Failed::Answer)?;
                let program = <&mut Xdp>::try_from(program)?;
                program.load()?;
                let mode = if hook == Hook::Native { XdpMode::Driver } else { XdpMode::Skb };
                program.attach(interface, mode)?;
            }
            Hook::Traffic => {
                // Kernels before 6.6 want it, and say so if it is there already.
                let _ = qdisc_add_clsact(interface);
                let program = programs.program_mut("echo_traffic").ok_or(Failed::Answer)?;
                let program = <&mut SchedClassifier>::try_from(program)?;
                program.load()?;
                program.attach(interface, TcAttachType::Ingress)?;
            }
        }
        Ok(Self { _programs: programs })
    }
}
