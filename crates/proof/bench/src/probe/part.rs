//! Starts, connects and stops the parts of a probe, which run as separate processes.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

/// Program and leading arguments of the command line that starts a part.
#[derive(Clone, Debug)]
pub struct PartLauncher {
    pub program: PathBuf,
    /// Arguments that precede those of the part.
    pub arguments: Vec<String>,
}

/// A running part, which is stopped on drop.
#[derive(Debug)]
pub struct PartProcess {
    child: Child,
    pub address: SocketAddr,
}

impl PartLauncher {
    /// Starts a part and waits until it reports its address.
    pub fn start(&self, arguments: &[String]) -> io::Result<PartProcess> {
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .args(arguments)
            // The part watches this pipe and also exits if this process is killed.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take();
        let read = match stdout {
            Some(stdout) => BufReader::new(stdout).read_line(&mut line),
            None => Ok(0),
        };
        let address = line.trim().parse();
        match (read, address) {
            (Ok(_), Ok(address)) => Ok(PartProcess { child, address }),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                Err(io::Error::other(format!("a part of the probe did not start: {arguments:?}")))
            }
        }
    }
}

impl PartProcess {
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for PartProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reports the address of this part on standard output and accepts a single client.
pub fn accept_one_client() -> io::Result<TcpStream> {
    exit_with_parent()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    print_address(listener.local_addr()?)?;
    let (client, _) = listener.accept()?;
    client.set_nodelay(true)?;
    Ok(client)
}

/// Reports the datagram address of this part on standard output. The sender of the first datagram
/// becomes the only client.
pub fn serve_datagrams() -> io::Result<UdpSocket> {
    exit_with_parent()?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    print_address(socket.local_addr()?)?;
    let (_, client) = socket.peek_from(&mut [0])?;
    socket.connect(client)?;
    Ok(socket)
}

fn exit_with_parent() -> io::Result<()> {
    std::thread::Builder::new().name("parent".to_owned()).spawn(|| {
        // The parent never writes. The pipe closes when the parent exits.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    })?;
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    Ok(())
}

fn print_address(address: SocketAddr) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{address}")?;
    out.flush()
}

pub fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    Ok(socket)
}
