//! Converts gRPC responses, message by message, to lines of JSON.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::body::Body;
use bytes::{Buf as _, Bytes, BytesMut};
use http_body::{Body as _, Frame};
use prost_reflect::MessageDescriptor;
use tonic::{Code, Status};

use super::json::message_to_json;
use crate::front::errors::http_code;

/// Prefix of a message: compression flag and length.
const MESSAGE_PREFIX_BYTES: usize = 5;

/// Messages of a gRPC response from a service in this process.
pub(super) struct ResponseFrames {
    body: Body,
    bytes: BytesMut,
    /// Outcome of the stream, once it has ended.
    outcome: Option<Result<(), Status>>,
}

impl ResponseFrames {
    pub(super) fn new(body: Body) -> Self {
        Self { body, bytes: BytesMut::new(), outcome: None }
    }

    fn take_frame(&mut self) -> Option<Bytes> {
        let head: [u8; MESSAGE_PREFIX_BYTES] =
            self.bytes.get(..MESSAGE_PREFIX_BYTES)?.try_into().ok()?;
        let [_, length @ ..] = head;
        let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
        if self.bytes.len() - MESSAGE_PREFIX_BYTES < length {
            return None;
        }
        self.bytes.advance(MESSAGE_PREFIX_BYTES);
        Some(self.bytes.split_to(length).freeze())
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        loop {
            if let Some(message) = self.take_frame() {
                return Poll::Ready(Ok(Some(message)));
            }
            if let Some(end) = &self.outcome {
                return Poll::Ready(end.clone().map(|()| None));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                None => self.outcome = Some(Ok(())),
                Some(Err(error)) => self.outcome = Some(Err(Status::internal(error.to_string()))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.bytes.extend_from_slice(&data),
                    Err(frame) => {
                        let status = frame.trailers_ref().and_then(Status::from_header_map);
                        self.outcome = Some(match status {
                            Some(status) if status.code() != Code::Ok => Err(status),
                            _ => Ok(()),
                        });
                    }
                },
            }
        }
    }

    /// Returns the next message, or `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// Waits for the end of the stream and returns its outcome.
    pub(super) async fn wait_for_end(&mut self) -> Result<(), Status> {
        while self.next().await?.is_some() {}
        Ok(())
    }
}

/// Response body with one JSON text per line and message.
pub(super) struct JsonLinesBody {
    frames: ResponseFrames,
    kind: MessageDescriptor,
    has_ended: bool,
}

impl JsonLinesBody {
    pub(super) const fn new(frames: ResponseFrames, kind: MessageDescriptor) -> Self {
        Self { frames, kind, has_ended: false }
    }
}

fn error(status: &Status) -> Vec<u8> {
    let http = http_code(status.code());
    let error = serde_json::json!({"error": {
        "grpc_code": status.code() as i32,
        "http_code": http.as_u16(),
        "http_status": http.canonical_reason().unwrap_or_default(),
        "message": status.message(),
    }});
    error.to_string().into_bytes()
}

impl http_body::Body for JsonLinesBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let message = ready!(self.frames.poll(context));
        let line = message.and_then(|message| match message {
            Some(message) => message_to_json(&self.kind, message).map(Some),
            None => Ok(None),
        });
        let mut line = match line {
            Ok(Some(text)) => [&b"{\"result\":"[..], &text, b"}"].concat(),
            Ok(None) => return Poll::Ready(None),
            Err(status) => {
                self.has_ended = true;
                error(&status)
            }
        };
        line.push(b'\n');
        Poll::Ready(Some(Ok(Frame::data(line.into()))))
    }
}
