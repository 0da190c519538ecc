//! An echo in the kernel, without a protocol: a lower bound for the latency of any device.

use aya::{
    Ebpf, EbpfLoader,
    programs::{
        SchedClassifier, Xdp, XdpMode,
        tc::{TcAttachType, qdisc_add_clsact},
    },
};

use crate::xdp::{Failed, Hook, object};

/// EtherType of the frames that are returned.
pub const ECHO_ETHER_TYPE: u16 = 0x88b5;
/// Port of the IPv4 datagrams that are returned.
pub const ECHO_PORT: u16 = 7462;

/// Returns frames that arrive at an interface, until it is dropped.
pub struct Echo {
    _programs: Ebpf,
}

impl Echo {
    /// Attaches the echo to this hook of the interface. At one end of a veth pair [`Hook::Native`]
    /// needs [`Passing`](crate::xdp::Passing) at the other end.
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
                // Kernels before 6.6 need it; the call fails if it already exists.
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
