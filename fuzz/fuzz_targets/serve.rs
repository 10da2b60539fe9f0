//! Any bytes as requests, answers and heads between a node and its server (SERVE-3.4): what is read
//! is written as the same bytes.
#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use oikaze_protocol::serve::{HEAD, OpenAnswer, OpenRequest, CONTROL_MESSAGE_MAX, ToNode, ToServer};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = OpenRequest::decode(bytes) {
        assert_eq!(OpenRequest::decode(&request.encode()).as_ref(), Ok(&request));
    }
    if let Ok(answer) = OpenAnswer::decode(bytes) {
        assert!(answer.encode().len() <= CONTROL_MESSAGE_MAX);
    }
    let Some(head) = bytes.first_chunk::<HEAD>() else { return };
    if let Ok(read) = ToServer::decode(head) {
        assert_eq!(ToServer::decode(&read.encode()), Ok(read));
    }
    if let Ok(read) = ToNode::decode(head) {
        assert_eq!(ToNode::decode(&read.encode()), Ok(read));
    }
});
