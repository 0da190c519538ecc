//! Transport of OpenRaft's requests and replies over TCP, one at a time per connection, as the
//! library issues them.

use std::{error::Error, io, time::Duration};

use openraft::{
    BasicNode, Raft, RaftNetwork, RaftNetworkFactory,
    error::{InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, Unreachable},
    network::RPCOption,
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest,
        InstallSnapshotResponse, VoteRequest, VoteResponse,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, BufStream},
    net::{TcpListener, TcpStream},
};

use crate::Types;

/// Longest message accepted.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
const BUFFER_BYTES: usize = 64 << 10;
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Serialize, Deserialize)]
enum PeerRequest {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<u64>),
    Install(InstallSnapshotRequest<Types>),
}

type Reply<T, E = RaftError<u64>> = Result<T, E>;

/// Serves requests from the other nodes until the process ends.
pub async fn serve_peers(address: &str, raft: Raft<Types>) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let raft = raft.clone();
            tokio::spawn(async move {
                // The other end replaces a broken connection.
                let _ = answer_requests(stream, raft).await;
            });
        }
    });
    Ok(())
}

async fn answer_requests(
    stream: TcpStream,
    raft: Raft<Types>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    stream.set_nodelay(true)?;
    let mut stream = BufStream::with_capacity(BUFFER_BYTES, BUFFER_BYTES, stream);
    loop {
        match receive_message(&mut stream).await? {
            PeerRequest::Append(request) => {
                send_message(&mut stream, &raft.append_entries(request).await).await?;
            }
            PeerRequest::Vote(request) => {
                send_message(&mut stream, &raft.vote(request).await).await?
            }
            PeerRequest::Install(request) => {
                send_message(&mut stream, &raft.install_snapshot(request).await).await?;
            }
        }
    }
}

async fn send_message(
    stream: &mut BufStream<TcpStream>,
    message: &impl Serialize,
) -> io::Result<()> {
    let bytes = bincode::serialize(message).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_le_bytes()).await?;
    stream.write_all(&bytes).await?;
    stream.flush().await
}

async fn receive_message<T: DeserializeOwned>(stream: &mut BufStream<TcpStream>) -> io::Result<T> {
    let length = usize::try_from(stream.read_u32_le().await?).map_err(io::Error::other)?;
    if length > MESSAGE_BYTES_MAX {
        return Err(io::Error::other("a message is too long"));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    bincode::deserialize(&bytes).map_err(io::Error::other)
}

/// Creates connections to peers.
pub struct ConnectionFactory;

impl RaftNetworkFactory<Types> for ConnectionFactory {
    type Network = Connection;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Connection {
        Connection { target_node: target, address: node.addr.clone(), stream: None }
    }
}

/// Connection to a peer.
pub struct Connection {
    target_node: u64,
    address: String,
    stream: Option<BufStream<TcpStream>>,
}

type Failure<E> = RPCError<u64, BasicNode, E>;

impl Connection {
    async fn send_request<T, E>(&mut self, request: PeerRequest) -> Result<T, Failure<E>>
    where
        T: DeserializeOwned,
        E: Error + DeserializeOwned,
    {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let connect =
                    tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(&self.address));
                let stream = connect.await.map_err(|error| Unreachable::new(&error))?;
                let stream = stream.map_err(|error| Unreachable::new(&error))?;
                let nodelay = stream.set_nodelay(true);
                nodelay.map_err(|error| NetworkError::new(&error))?;
                BufStream::with_capacity(BUFFER_BYTES, BUFFER_BYTES, stream)
            }
        };
        let failed = |error: io::Error| NetworkError::new(&error);
        send_message(&mut stream, &request).await.map_err(failed)?;
        let reply: Reply<T, E> = receive_message(&mut stream).await.map_err(failed)?;
        // Kept only after a complete reply: a cancelled request leaves a reply unread, so its
        // connection must close.
        self.stream = Some(stream);
        reply.map_err(|error| RemoteError::new(self.target_node, error).into())
    }
}

impl RaftNetwork<Types> for Connection {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, Failure<RaftError<u64>>> {
        self.send_request(PeerRequest::Append(request)).await
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<Types>,
        _: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Failure<RaftError<u64, InstallSnapshotError>>> {
        self.send_request(PeerRequest::Install(request)).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        _: RPCOption,
    ) -> Result<VoteResponse<u64>, Failure<RaftError<u64>>> {
        self.send_request(PeerRequest::Vote(request)).await
    }
}
