//! Errors for clients. Codes and messages are those of etcd, because clients match on both.

use axum::http::StatusCode;
use quorate::{Failure, RequestError};
use tonic::{Code, Status};

use crate::{check::StreamRefusal, refusal::Refusal};

/// Returns the error for a request that exceeds the maximum size of a log entry.
pub(super) fn too_large() -> Status {
    Status::new(Code::InvalidArgument, "etcdserver: request is too large")
}

pub(super) fn permission_denied() -> Status {
    Status::new(Code::PermissionDenied, "etcdserver: permission denied")
}

/// Returns the error for a token that is malformed or expired, or whose user has changed.
pub(super) fn invalid_token() -> Status {
    Status::unauthenticated("etcdserver: invalid auth token")
}

pub(super) fn is_invalid_token(status: &Status) -> bool {
    status.code() == Code::Unauthenticated
}

/// Returns etcd's error for a login at a node that can only verify tokens.
pub(super) fn cannot_issue_tokens() -> Status {
    Status::unknown("auth: token signing attempted with verify-only key")
}

/// Returns the error for a login while auth is disabled.
pub(super) fn auth_not_enabled() -> Status {
    Status::failed_precondition("etcdserver: authentication is not enabled")
}

/// Returns the error for a wrong user name or password.
pub(super) fn auth_failed() -> Status {
    Status::invalid_argument("etcdserver: authentication failed, invalid user ID or password")
}

/// Returns whether users or roles changed between authentication and the check of rights. If so,
/// nothing was executed.
pub(super) fn is_auth_changed(status: &Status) -> bool {
    let moved = [Refusal::AuthOldRevision, Refusal::UserEmpty].map(refusal_status);
    moved.iter().any(|moved| moved.code() == status.code() && moved.message() == status.message())
}

/// Finds a gRPC status among the causes of an error.
pub(super) fn status_in_causes(error: &(dyn std::error::Error + 'static)) -> Option<Status> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(status) = error.downcast_ref::<Status>() {
            return Some(status.clone());
        }
        cause = error.source();
    }
    None
}

/// Formats a gRPC error as text, for messages that cannot contain a status.
pub(super) fn format_status(status: &Status) -> String {
    format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
}

/// Returns the error for a request that exceeds the memory left by concurrent ones.
pub(super) fn memory_exceeded() -> Status {
    Status::new(Code::ResourceExhausted, "etcdserver: too many requests")
}

/// Returns whether the error is [`memory_exceeded`]: nothing was executed, and the client may
/// retry.
pub(super) fn is_memory_exceeded(status: &Status) -> bool {
    status.code() == Code::ResourceExhausted && status.message() == memory_exceeded().message()
}

/// Returns the error for a range that cannot be streamed. On `Unimplemented`, clients use Range.
pub(super) fn range_not_streamable(refusal: StreamRefusal) -> Status {
    let text = match refusal {
        StreamRefusal::Order => "RangeStream does not support custom sort orders",
        StreamRefusal::RevisionFilters => "RangeStream does not support revision filters",
        StreamRefusal::Other(refusal) => return refusal_status(refusal),
    };
    Status::unimplemented(text)
}

/// Returns the error for a request that only the leader can execute.
pub(super) fn not_leader() -> Status {
    Status::new(Code::FailedPrecondition, "etcdserver: not leader")
}

pub(super) fn server_stopped() -> Status {
    Status::new(Code::Unavailable, "etcdserver: server stopped")
}

/// Converts a refusal by the state machine.
pub(super) fn refusal_status(refusal: Refusal) -> Status {
    let (code, text) = match refusal {
        Refusal::Malformed => (Code::Internal, "etcdserver: the command makes no sense"),
        Refusal::Compacted => {
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted")
        }
        Refusal::FutureRevision => {
            (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision")
        }
        Refusal::KeyNotFound => (Code::InvalidArgument, "etcdserver: key not found"),
        Refusal::LeaseNotFound => (Code::NotFound, "etcdserver: requested lease not found"),
        // etcd has no such limit, and no message for it.
        Refusal::BudgetExceeded => (
            Code::ResourceExhausted,
            "etcdserver: the answer is too large; ask for less, with a limit or fewer keys",
        ),
        Refusal::EmptyKey => (Code::InvalidArgument, "etcdserver: key is not provided"),
        Refusal::KeyTooLong => {
            (Code::InvalidArgument, "etcdserver: key is too long; it may have 16384 bytes")
        }
        Refusal::ValueProvided => (Code::InvalidArgument, "etcdserver: value is provided"),
        Refusal::LeaseProvided => (Code::InvalidArgument, "etcdserver: lease is provided"),
        Refusal::TooManyOps => {
            (Code::InvalidArgument, "etcdserver: too many operations in txn request")
        }
        Refusal::DuplicateKey => {
            (Code::InvalidArgument, "etcdserver: duplicate key given in txn request")
        }
        Refusal::InvalidSortOption => (Code::InvalidArgument, "etcdserver: invalid sort option"),
        Refusal::LeaseExists => (Code::FailedPrecondition, "etcdserver: lease already exists"),
        Refusal::LeaseTooLong => (Code::OutOfRange, "etcdserver: too large lease TTL"),
        // etcd has no such limits, either.
        Refusal::TooManyLeases => {
            (Code::ResourceExhausted, "etcdserver: too many leases; there may be 1000000 at a time")
        }
        Refusal::LeaseKeysFull => (
            Code::ResourceExhausted,
            "etcdserver: too many keys in one lease; there may be 100000, use several leases",
        ),
        Refusal::NoSpace => (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
        Refusal::TooManyAlarms => {
            (Code::ResourceExhausted, "etcdserver: too many alarms; disarm some first")
        }
        Refusal::UserEmpty => (Code::InvalidArgument, "etcdserver: user name is empty"),
        Refusal::AuthOldRevision => {
            (Code::InvalidArgument, "etcdserver: revision of auth store is old")
        }
        Refusal::AuthOutdated => (Code::Unavailable, "etcdserver: unhealthy cluster"),
        Refusal::PermissionDenied => (Code::PermissionDenied, "etcdserver: permission denied"),
        Refusal::RootUserNotExist => {
            (Code::FailedPrecondition, "etcdserver: root user does not exist")
        }
        Refusal::RootRoleNotExist => {
            (Code::FailedPrecondition, "etcdserver: root user does not have root role")
        }
        Refusal::UserAlreadyExists => {
            (Code::FailedPrecondition, "etcdserver: user name already exists")
        }
        Refusal::UserNotFound => (Code::FailedPrecondition, "etcdserver: user name not found"),
        Refusal::RoleAlreadyExists => {
            (Code::FailedPrecondition, "etcdserver: role name already exists")
        }
        Refusal::RoleNotFound => (Code::FailedPrecondition, "etcdserver: role name not found"),
        Refusal::RoleEmpty => (Code::InvalidArgument, "etcdserver: role name is empty"),
        Refusal::RoleNotGranted => {
            (Code::FailedPrecondition, "etcdserver: role is not granted to the user")
        }
        Refusal::PermissionNotGranted => {
            (Code::FailedPrecondition, "etcdserver: permission is not granted to the role")
        }
        Refusal::PermissionNotGiven => (Code::InvalidArgument, "etcdserver: permission not given"),
        Refusal::InvalidAuthManagement => {
            (Code::InvalidArgument, "etcdserver: invalid auth management")
        }
        Refusal::AuthLimitReached => (
            Code::ResourceExhausted,
            "etcdserver: too many users, roles or permissions; there may be 10000 users and roles each, 128 roles of a \
             user, 1000 permissions of a role, 256 bytes in a name, and 16 MiB in all",
        ),
        Refusal::NestedTooDeep => (
            Code::InvalidArgument,
            "etcdserver: transactions are nested too deeply; there may be 32 levels",
        ),
    };
    Status::new(code, text)
}

/// Converts the failure of a request that was not executed or whose outcome is unknown.
pub(super) fn failure_status(RequestError(failure): RequestError) -> Status {
    match failure {
        Failure::Busy => memory_exceeded(),
        Failure::TooBig => too_large(),
        Failure::Stopping => server_stopped(),
        Failure::NoQuorum => Status::new(Code::Unavailable, "etcdserver: no leader"),
        Failure::Removed | Failure::Voteless | Failure::Unavailable => {
            Status::new(Code::Unavailable, "etcdserver: unhealthy cluster")
        }
        Failure::DiskFull(_) => refusal_status(Refusal::NoSpace),
        Failure::Diverged => Status::new(
            Code::Unavailable,
            "etcdserver: corrupt cluster: this node and others have different data, and this one may be wrong; see \
             docs/operate/divergence.md",
        ),
        Failure::Level => Status::new(
            Code::FailedPrecondition,
            "etcdserver: the cluster does not use the feature level of this request yet",
        ),
        // The command may have been executed. On this message, clients do not retry automatically.
        Failure::Unknown
        | Failure::NotLasting
        | Failure::Stale
        | Failure::Overtaken
        | Failure::NoSession
        | Failure::ReplyForgotten
        | Failure::SessionFull => Status::new(Code::Unavailable, "etcdserver: request timed out"),
    }
}

pub(super) const fn http_code(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => {
            StatusCode::BAD_REQUEST
        }
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Cancelled => StatusCode::REQUEST_TIMEOUT,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
