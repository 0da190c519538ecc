//! Gateway for JSON requests, which etcd accepts alongside gRPC.
//!
//! A request is converted to Protobuf by the protocol's descriptors and passed to this node's gRPC
//! services, so the gateway grants no additional rights. The response is converted back to JSON; a
//! stream becomes one JSON text per line ([`lines`]). Bodies are read completely, regardless of
//! their content type.

mod json;
mod lines;

use std::sync::Arc;

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::Bytes;
use prost_reflect::{DescriptorPool, MethodDescriptor};
use tonic::{Code, Status, codegen::Service as _};

use self::{
    json::{message_to_json, to_grpc_frames},
    lines::{JsonLinesBody, ResponseFrames},
};
use super::{asking::ReplicaAccess, errors, gate::Caller, memory::MemoryShare};
use crate::proto::DESCRIPTORS;

/// Maximum size of a body, enough for the largest request in Base64 with its JSON envelope.
const BODY_BYTES_MAX: usize = 4 << 20;

/// Path, service and method of each route.
const ROUTES: [(&str, &str, &str); 55] = [
    ("/v3/kv/range", "etcdserverpb.KV", "Range"),
    ("/v3/kv/put", "etcdserverpb.KV", "Put"),
    ("/v3/kv/deleterange", "etcdserverpb.KV", "DeleteRange"),
    ("/v3/kv/txn", "etcdserverpb.KV", "Txn"),
    ("/v3/kv/compaction", "etcdserverpb.KV", "Compact"),
    ("/v3/watch", "etcdserverpb.Watch", "Watch"),
    ("/v3/lease/grant", "etcdserverpb.Lease", "LeaseGrant"),
    ("/v3/lease/revoke", "etcdserverpb.Lease", "LeaseRevoke"),
    ("/v3/kv/lease/revoke", "etcdserverpb.Lease", "LeaseRevoke"),
    ("/v3/lease/keepalive", "etcdserverpb.Lease", "LeaseKeepAlive"),
    ("/v3/lease/timetolive", "etcdserverpb.Lease", "LeaseTimeToLive"),
    ("/v3/kv/lease/timetolive", "etcdserverpb.Lease", "LeaseTimeToLive"),
    ("/v3/lease/leases", "etcdserverpb.Lease", "LeaseLeases"),
    ("/v3/kv/lease/leases", "etcdserverpb.Lease", "LeaseLeases"),
    ("/v3/cluster/member/add", "etcdserverpb.Cluster", "MemberAdd"),
    ("/v3/cluster/member/remove", "etcdserverpb.Cluster", "MemberRemove"),
    ("/v3/cluster/member/update", "etcdserverpb.Cluster", "MemberUpdate"),
    ("/v3/cluster/member/list", "etcdserverpb.Cluster", "MemberList"),
    ("/v3/cluster/member/promote", "etcdserverpb.Cluster", "MemberPromote"),
    ("/v3/maintenance/alarm", "etcdserverpb.Maintenance", "Alarm"),
    ("/v3/maintenance/status", "etcdserverpb.Maintenance", "Status"),
    ("/v3/maintenance/defragment", "etcdserverpb.Maintenance", "Defragment"),
    ("/v3/maintenance/hash", "etcdserverpb.Maintenance", "HashKV"),
    ("/v3/maintenance/hashkv", "etcdserverpb.Maintenance", "HashKV"),
    ("/v3/maintenance/snapshot", "etcdserverpb.Maintenance", "Snapshot"),
    ("/v3/maintenance/transfer-leadership", "etcdserverpb.Maintenance", "MoveLeader"),
    ("/v3/maintenance/downgrade", "etcdserverpb.Maintenance", "Downgrade"),
    ("/v3/auth/enable", "etcdserverpb.Auth", "AuthEnable"),
    ("/v3/auth/disable", "etcdserverpb.Auth", "AuthDisable"),
    ("/v3/auth/status", "etcdserverpb.Auth", "AuthStatus"),
    ("/v3/auth/authenticate", "etcdserverpb.Auth", "Authenticate"),
    ("/v3/auth/user/add", "etcdserverpb.Auth", "UserAdd"),
    ("/v3/auth/user/get", "etcdserverpb.Auth", "UserGet"),
    ("/v3/auth/user/list", "etcdserverpb.Auth", "UserList"),
    ("/v3/auth/user/delete", "etcdserverpb.Auth", "UserDelete"),
    ("/v3/auth/user/changepw", "etcdserverpb.Auth", "UserChangePassword"),
    ("/v3/auth/user/grant", "etcdserverpb.Auth", "UserGrantRole"),
    ("/v3/auth/user/revoke", "etcdserverpb.Auth", "UserRevokeRole"),
    ("/v3/auth/role/add", "etcdserverpb.Auth", "RoleAdd"),
    ("/v3/auth/role/get", "etcdserverpb.Auth", "RoleGet"),
    ("/v3/auth/role/list", "etcdserverpb.Auth", "RoleList"),
    ("/v3/auth/role/delete", "etcdserverpb.Auth", "RoleDelete"),
    ("/v3/auth/role/grant", "etcdserverpb.Auth", "RoleGrantPermission"),
    ("/v3/auth/role/revoke", "etcdserverpb.Auth", "RoleRevokePermission"),
    ("/v3/lock/lock", "v3lockpb.Lock", "Lock"),
    ("/v3/lock/unlock", "v3lockpb.Lock", "Unlock"),
    ("/v3/election/campaign", "v3electionpb.Election", "Campaign"),
    ("/v3/election/proclaim", "v3electionpb.Election", "Proclaim"),
    ("/v3/election/leader", "v3electionpb.Election", "Leader"),
    ("/v3/election/observe", "v3electionpb.Election", "Observe"),
    ("/v3/election/resign", "v3electionpb.Election", "Resign"),
    // Paths that older clients use.
    ("/v3/kv/lease/grant", "etcdserverpb.Lease", "LeaseGrant"),
    ("/v3/kv/lease/keepalive", "etcdserverpb.Lease", "LeaseKeepAlive"),
    ("/v3/kv/compact", "etcdserverpb.KV", "Compact"),
    ("/v3/kv/delete", "etcdserverpb.KV", "DeleteRange"),
];

#[derive(Clone)]
struct GatewayMethod {
    replica_access: Arc<ReplicaAccess>,
    /// gRPC services that requests are passed to.
    services: Router,
    method: MethodDescriptor,
}

/// Returns a router that maps each path to a method of `services`.
pub(super) fn routes(asking: &Arc<ReplicaAccess>, services: &Router) -> Router {
    let pool = match DescriptorPool::decode(DESCRIPTORS) {
        Ok(pool) => pool,
        Err(error) => {
            tracing::error!(%error, "there is no gateway");
            return Router::new();
        }
    };
    let mut router = Router::new();
    for (path, service, method) in ROUTES {
        let service = pool.get_service_by_name(service);
        let found = service.and_then(|service| service.methods().find(|one| one.name() == method));
        let Some(method) = found else { continue };
        let gate = GatewayMethod {
            replica_access: Arc::clone(asking),
            services: services.clone(),
            method,
        };
        router = router.merge(Router::new().route(path, post(handle_request)).with_state(gate));
    }
    router
}

fn respond(code: StatusCode, body: impl Into<Body>) -> Response {
    let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    (code, [json], body.into()).into_response()
}

/// Returns an error in the format of etcd's gateway.
fn error_response(status: &Status) -> Response {
    let error = serde_json::json!({
        "error": status.message(),
        "code": status.code() as i32,
        "message": status.message(),
    });
    respond(errors::http_code(status.code()), error.to_string())
}

async fn handle_request(State(gate): State<GatewayMethod>, request: Request) -> Response {
    match gate.answer_request(request).await {
        Ok(response) => response,
        Err(status) => error_response(&status),
    }
}

impl GatewayMethod {
    async fn answer_request(self, request: Request) -> Result<Response, Status> {
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
        let token = request.headers().get(header::AUTHORIZATION).cloned();
        let body = to_bytes(request.into_body(), BODY_BYTES_MAX).await;
        let body = body.map_err(|error| match errors::status_in_causes(&error) {
            Some(status) => status,
            None => errors::too_large(),
        })?;
        // Charges the parsed request; the service charges its own memory.
        let share = self.replica_access.memory.try_reserve(json::estimate_memory(&body));
        let share = share.ok_or_else(errors::memory_exceeded)?;
        let (streams, input) = (self.method.is_client_streaming(), self.method.input());
        let message = to_grpc_frames(&input, &body, streams)?;
        drop(body);
        let mut response = self.forward_request(message, caller, token).await?;
        drop(share);
        let of_answer = response.extensions_mut().remove::<Arc<MemoryShare>>();
        if let Some(status) = Status::from_header_map(response.headers())
            && status.code() != Code::Ok
        {
            return Err(status);
        }
        let frames = ResponseFrames::new(response.into_body());
        if self.method.is_server_streaming() {
            let lines = JsonLinesBody::new(frames, self.method.output());
            return Ok(respond(StatusCode::OK, Body::new(lines)));
        }
        self.single_message_response(frames, of_answer).await
    }

    /// Passes a request to the gRPC services and converts the response.
    async fn forward_request(
        &self,
        message: Bytes,
        caller: Caller,
        token: Option<HeaderValue>,
    ) -> Result<Response, Status> {
        let service = self.method.parent_service().full_name();
        let path = format!("/{service}/{}", self.method.name());
        let mut request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.extension(caller).body(Body::from(message));
        let request = request.map_err(|error| Status::internal(error.to_string()))?;
        // A router is always ready and never fails.
        let response = self.services.clone().call(request).await;
        response.map_err(|never| match never {})
    }

    /// Returns the response of a method with a single message.
    async fn single_message_response(
        &self,
        mut frames: ResponseFrames,
        of: Option<Arc<MemoryShare>>,
    ) -> Result<Response, Status> {
        let message = frames.next().await?;
        let message =
            message.ok_or_else(|| Status::internal("etcdserver: the method returned nothing"))?;
        // Base64 and field names take less than three times the message's size.
        let share = self.replica_access.memory.try_reserve(message.len().saturating_mul(3));
        let share = share.ok_or_else(errors::memory_exceeded)?;
        let text = message_to_json(&self.method.output(), message)?;
        frames.wait_for_end().await?;
        drop(of);
        let mut response = respond(StatusCode::OK, text);
        response.extensions_mut().insert(Arc::new(share));
        Ok(response)
    }
}
