//! Conversion between JSON and Protobuf with the field names of the definitions, as in etcd's
//! gateway.

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::Message as _;
use prost_reflect::{DeserializeOptions, DynamicMessage, MessageDescriptor, SerializeOptions};
use tonic::Status;

/// Approximate memory of a parsed JSON value, in bytes.
const VALUE_MEMORY_BYTES: usize = 256;

/// Estimates the memory of a parsed request by counting the characters that precede values.
pub(super) fn estimate_memory(body: &[u8]) -> usize {
    let begins = body.iter().filter(|byte| b"{[,:".contains(byte)).count();
    body.len() * 3 + begins * VALUE_MEMORY_BYTES
}

fn malformed_json(error: &serde_json::Error) -> Status {
    Status::invalid_argument(error.to_string())
}

fn parse_message(
    kind: &MessageDescriptor,
    json: &mut serde_json::Deserializer<serde_json::de::SliceRead<'_>>,
) -> Result<Vec<u8>, Status> {
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let read = DynamicMessage::deserialize_with_options(kind.clone(), json, &options);
    read.map(|message| message.encode_to_vec()).map_err(|error| malformed_json(&error))
}

/// Converts a request to gRPC frames, one per message. An empty body becomes one empty message.
pub(super) fn to_grpc_frames(
    kind: &MessageDescriptor,
    body: &[u8],
    streams: bool,
) -> Result<Bytes, Status> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let mut all = BytesMut::new();
    if json.end().is_ok() {
        append_frame(&[], &mut all)?;
        return Ok(all.freeze());
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    loop {
        append_frame(&parse_message(kind, &mut json)?, &mut all)?;
        let end = json.end();
        match streams {
            true if end.is_err() => {}
            _ => {
                end.map_err(|error| malformed_json(&error))?;
                return Ok(all.freeze());
            }
        }
    }
}

fn append_frame(message: &[u8], all: &mut BytesMut) -> Result<(), Status> {
    let length = u32::try_from(message.len());
    let length = length.map_err(|_| Status::resource_exhausted("the request is too large"))?;
    all.put_u8(0);
    all.put_u32(length);
    all.put_slice(message);
    Ok(())
}

/// Converts a Protobuf message to JSON.
pub(super) fn message_to_json(kind: &MessageDescriptor, message: Bytes) -> Result<Vec<u8>, Status> {
    let message = DynamicMessage::decode(kind.clone(), message);
    let message = message.map_err(|error| Status::internal(error.to_string()))?;
    let options = SerializeOptions::new().use_proto_field_name(true);
    let mut json = serde_json::Serializer::new(Vec::new());
    let written = message.serialize_with_options(&mut json, &options);
    written.map_err(|error| Status::internal(error.to_string()))?;
    Ok(json.into_inner())
}

#[cfg(test)]
mod tests {
    use prost_reflect::DescriptorPool;

    use super::*;
    use crate::proto::{
        DESCRIPTORS,
        etcdserverpb::{
            MemberListResponse, PutRequest, RangeResponse, ResponseHeader, TxnRequest,
            WatchRequest, compare::TargetUnion, request_op::Request, watch_request::RequestUnion,
        },
        mvccpb::KeyValue,
    };

    fn kind(name: &str) -> MessageDescriptor {
        let pool = DescriptorPool::decode(DESCRIPTORS).unwrap();
        pool.get_message_by_name(&format!("etcdserverpb.{name}")).unwrap()
    }

    fn convert_message<M: prost::Message + Default>(name: &str, json: &str) -> M {
        let bytes = to_grpc_frames(&kind(name), json.as_bytes(), false).unwrap();
        M::decode(&bytes[5..]).unwrap()
    }

    #[test]
    fn requests_are_read_as_etcd_reads_them() {
        let put: PutRequest =
            convert_message("PutRequest", r#"{"key":"Zm9v","value":"YmFy","lease":"7","new":1}"#);
        assert_eq!((&put.key[..], &put.value[..], put.lease), (&b"foo"[..], &b"bar"[..], 7));
        let put: PutRequest = convert_message(
            "PutRequest",
            r#"{"key":"Zm9v","prev_kv":true,"ignoreValue":true,"lease":8}"#,
        );
        assert_eq!((put.prev_kv, put.ignore_value, put.lease), (true, true, 8));
        let txn: TxnRequest = convert_message(
            "TxnRequest",
            r#"{"compare":[{"result":"EQUAL","target":"CREATE","key":"Zm9v","createRevision":"2"}],
                "success":[{"requestPut":{"key":"Zm9v","value":"YmFy"}}]}"#,
        );
        assert_eq!(txn.compare[0].target_union, Some(TargetUnion::CreateRevision(2)));
        assert!(matches!(txn.success[0].request, Some(Request::RequestPut(_))));
        assert_eq!(convert_message::<PutRequest>("PutRequest", ""), PutRequest::default());
        for bad in ["{", "[]", "7", r#"{"key":7}"#, r#"{"key":"*"}"#, "{}{}", r#"{"lease":"x"}"#] {
            let refused = to_grpc_frames(&kind("PutRequest"), bad.as_bytes(), false);
            assert!(refused.is_err(), "{bad}");
        }
        let deep = "[".repeat(100_000);
        assert!(to_grpc_frames(&kind("TxnRequest"), deep.as_bytes(), false).is_err());
    }

    #[test]
    fn stream_body_may_have_any_number_of_requests() {
        let body = br#"{"create_request":{"key":"YQ=="}} {"progress_request":{}}"#;
        let bytes = to_grpc_frames(&kind("WatchRequest"), body, true).unwrap();
        let length = usize::try_from(u32::from_be_bytes(bytes[1..5].try_into().unwrap())).unwrap();
        let first = WatchRequest::decode(&bytes[5..5 + length]).unwrap();
        assert!(matches!(first.request_union, Some(RequestUnion::CreateRequest(_))));
        let second = WatchRequest::decode(&bytes[10 + length..]).unwrap();
        assert!(matches!(second.request_union, Some(RequestUnion::ProgressRequest(_))));
    }

    #[test]
    fn answers_are_written_as_etcd_writes_them() {
        let header =
            Some(ResponseHeader { cluster_id: u64::MAX, revision: 3, ..ResponseHeader::default() });
        let kv = KeyValue {
            key: "foo".into(),
            mod_revision: 3,
            value: vec![0xff, 0xfe].into(),
            ..KeyValue::default()
        };
        let answer = RangeResponse { header, kvs: vec![kv], more: false, count: 1 };
        let text = message_to_json(&kind("RangeResponse"), answer.encode_to_vec().into()).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            r#"{"header":{"cluster_id":"18446744073709551615","revision":"3"},"kvs":[{"key":"Zm9v","mod_revision":"3","value":"//4="}],"count":"1"}"#
        );
        let member = crate::proto::etcdserverpb::Member {
            id: 1,
            client_ur_ls: vec!["http://h:1".to_owned()],
            ..Default::default()
        };
        let answer = MemberListResponse { header: None, members: vec![member] };
        let text =
            message_to_json(&kind("MemberListResponse"), answer.encode_to_vec().into()).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            r#"{"members":[{"ID":"1","clientURLs":["http://h:1"]}]}"#
        );
    }

    #[test]
    fn small_values_are_charged_a_minimum() {
        assert!(estimate_memory(br#"{"compare":[{},{},{}]}"#) > 5 * VALUE_MEMORY_BYTES);
    }
}
