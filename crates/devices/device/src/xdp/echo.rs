//! Echo program in the kernel, without a protocol. Its latency is a lower bound for any device.

use aya::{
    Ebpf, EbpfLoader,
    programs::{
        SchedClassifier, Xdp, XdpMode,
        tc::{TcAttachType, qdisc_add_clsact},
    },
};

use crate::xdp::{Hook, XdpError, object};

/// EtherType of the frames that the echo returns.
pub const ECHO_ETHER_TYPE: u16 = 0x88b5;
/// Port of the IPv4 datagrams that the echo returns.
pub const ECHO_PORT: u16 = 7462;

/// An attached echo program, which returns frames to their sender until it is dropped.
pub struct EchoProgram {
    _programs: Ebpf,
}

impl EchoProgram {
    /// Attaches the echo to a hook of an interface. At one end of a veth pair, [`Hook::Native`]
    /// needs [`PassProgram`](crate::xdp::PassProgram) at the other end.
    pub fn attach(interface: &str, hook: Hook) -> Result<Self, XdpError> {
        let mut programs = EbpfLoader::new().load(object::ECHO_OBJECT)?;
        match hook {
            Hook::Native | Hook::Generic => {
                let program =
                    programs.program_mut("echo_early").ok_or(XdpError::MismatchedAnswer)?;
                let program = <&mut Xdp>::try_from(program)?;
                program.load()?;
                let mode = if hook == Hook::Native { XdpMode::Driver } else { XdpMode::Skb };
                program.attach(interface, mode)?;
            }
            Hook::Traffic => {
                // Kernels before 6.6 need the qdisc. The call fails if it already exists.
                let _ = qdisc_add_clsact(interface);
                let program =
                    programs.program_mut("echo_traffic").ok_or(XdpError::MismatchedAnswer)?;
                let program = <&mut SchedClassifier>::try_from(program)?;
                program.load()?;
                program.attach(interface, TcAttachType::Ingress)?;
            }
        }
        Ok(Self { _programs: programs })
    }
}
