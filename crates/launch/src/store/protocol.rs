//! Frames of the store's protocol: `length u32 | body | tag`, little-endian; the tag only after the
//! handshake.
//!
//! In the handshake, the store greets with its version and a nonce. The node answers with its
//! version, place and nonce, and proves the secret over all of it. The store proves the secret too.
//! Labels differ by direction, so no proof can be reflected.
//!
//! From then on each frame carries 16 bytes of HMAC-SHA256 under a session key over direction,
//! number and body. An attacker on the path cannot insert, drop or repeat frames. Values are not
//! encrypted, and the secret itself never travels here.

use crate::{KEY_MAX, NodeEnd, Secret, VALUE_MAX};

/// Protocol version, which must be the same at both ends.
pub const VERSION: u16 = 3;
/// Length of the length field in front of a frame, in bytes.
pub const LENGTH_LEN: usize = 4;
/// Length of a frame's tag, in bytes.
pub const TAG_LEN: usize = 16;
/// Maximum length of the text of a refusal or an abort, in bytes.
pub const TEXT_MAX: usize = 1024;
/// Maximum length of a question or an answer, in bytes (4 KiB).
pub const QUESTION_MAX: usize = 4096;
/// Maximum length of a frame after the handshake, in bytes.
pub const FRAME_MAX: usize = VALUE_MAX + KEY_MAX + 64 + TAG_LEN;
/// Maximum length of a frame of the handshake, in bytes.
pub const HANDSHAKE_MAX: usize = 256 + TEXT_MAX;
/// Length of a nonce, in bytes.
pub const NONCE_LEN: usize = 32;
/// Length of the identity of a process, in bytes.
pub const PROCESS_LEN: usize = 16;

const MAGIC: &[u8; 8] = b"OIKAZEST";

/// Error for bytes that are no frame of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a frame of the store's protocol: {0}")]
pub struct Malformed(pub &'static str);

/// Takes typed pieces off the front of a slice.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (front, rest) = self.0.split_at_checked(len).ok_or(Malformed("too short"))?;
        self.0 = rest;
        Ok(front)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (front, rest) = self.0.split_first_chunk().ok_or(Malformed("too short"))?;
        self.0 = rest;
        Ok(*front)
    }
    fn key(&mut self) -> Result<String, Malformed> {
        let [len] = self.array()?;
        if usize::from(len) > KEY_MAX {
            return Err(Malformed("key too long"));
        }
        let key = self.take(usize::from(len))?;
        Ok(std::str::from_utf8(key).map_err(|_| Malformed("key is not UTF-8"))?.to_owned())
    }
    fn rest(&mut self, max: usize) -> Result<&'a [u8], Malformed> {
        if self.0.len() > max {
            return Err(Malformed("too long"));
        }
        self.take(self.0.len())
    }
    fn text(&mut self) -> Result<String, Malformed> {
        self.long_text(TEXT_MAX)
    }
    fn long_text(&mut self, max: usize) -> Result<String, Malformed> {
        Ok(String::from_utf8_lossy(self.rest(max)?).into_owned())
    }
    fn node_end(&mut self) -> Result<NodeEnd, Malformed> {
        let (rank, success) = (u32::from_le_bytes(self.array()?), self.array()?);
        let success = match success {
            [0] => false,
            [1] => true,
            _ => return Err(Malformed("neither success nor failure")),
        };
        Ok(NodeEnd { rank, how: self.text()?, success })
    }
    fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("bytes after the end")) }
    }
}

/// Returns at most [`TEXT_MAX`] bytes of a text, cut between characters.
#[must_use]
pub fn clip(text: &str) -> &str {
    clip_to(text, TEXT_MAX)
}

/// Returns at most `max` bytes of a text, cut between characters.
#[must_use]
pub fn clip_to(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

fn encode_end(end: &NodeEnd) -> Vec<u8> {
    [&end.rank.to_le_bytes()[..], &[u8::from(end.success)], clip(&end.how).as_bytes()].concat()
}

/// First message of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Version of the store.
    pub version: u16,
    /// Nonce of this connection.
    pub nonce: [u8; NONCE_LEN],
}

impl Greeting {
    /// Encodes the greeting as a body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        [&MAGIC[..], &self.version.to_le_bytes(), &self.nonce].concat()
    }

    /// Decodes a body. Later versions may append, so only the front is read if the version is
    /// another one.
    ///
    /// # Errors
    /// The body is not a greeting.
    pub fn decode(body: &[u8]) -> Result<Greeting, Malformed> {
        let mut cursor = Cursor(body);
        if cursor.array()? != *MAGIC {
            return Err(Malformed("no greeting of a store"));
        }
        let version = u16::from_le_bytes(cursor.array()?);
        if version != VERSION {
            return Ok(Greeting { version, nonce: [0; NONCE_LEN] });
        }
        let nonce = cursor.array()?;
        cursor.end()?;
        Ok(Greeting { version, nonce })
    }
}

/// Answer of a node to the greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Version of the node.
    pub version: u16,
    /// Rank that the caller claims.
    pub rank: u32,
    /// Number of nodes of the job, as the caller has it.
    pub size: u32,
    /// Incarnation of the caller.
    pub incarnation: u64,
    /// Identity of the process: the same for all its connections.
    pub process: [u8; PROCESS_LEN],
    /// Number of this proof among those of the process, from 1.
    pub attempt: u32,
    /// Nonce of this connection.
    pub nonce: [u8; NONCE_LEN],
    /// Proof of the secret, over all of the above and the greeting.
    pub mac: [u8; 32],
}

impl Proof {
    /// Fills in `mac`.
    #[must_use]
    pub fn signed(mut self, secret: &Secret, greeting: &Greeting) -> Proof {
        self.mac = secret.mac(&[b"oikaze store: node's proof", &greeting.encode(), &self.claims()]);
        self
    }

    /// Returns `true` if the node knows the secret.
    #[must_use]
    pub fn verify(&self, secret: &Secret, greeting: &Greeting) -> bool {
        secret
            .verify(&[b"oikaze store: node's proof", &greeting.encode(), &self.claims()], &self.mac)
    }

    /// Returns the store's proof in return.
    #[must_use]
    pub fn answer(&self, secret: &Secret, greeting: &Greeting) -> [u8; 32] {
        secret.mac(&[b"oikaze store: store's proof", &greeting.encode(), &self.claims()])
    }

    /// Returns the store's proof that a refusal in these words is its own.
    #[must_use]
    pub fn refusal(&self, secret: &Secret, greeting: &Greeting, why: &str) -> [u8; 32] {
        secret.mac(&[
            b"oikaze store: store's refusal",
            &greeting.encode(),
            &self.claims(),
            clip(why).as_bytes(),
        ])
    }

    /// Returns `true` if a refusal in these words is the store's own.
    #[must_use]
    pub fn verify_refusal(
        &self,
        secret: &Secret,
        greeting: &Greeting,
        why: &str,
        mac: &[u8; 32],
    ) -> bool {
        secret.verify(
            &[b"oikaze store: store's refusal", &greeting.encode(), &self.claims(), why.as_bytes()],
            mac,
        )
    }

    /// Returns the key of the connection that follows.
    #[must_use]
    pub fn session(&self, secret: &Secret, greeting: &Greeting) -> Secret {
        secret.derive(&[b"oikaze store: session", &greeting.encode(), &self.claims()])
    }

    fn claims(&self) -> Vec<u8> {
        let mut body = MAGIC.to_vec();
        body.extend(self.version.to_le_bytes());
        body.extend(self.rank.to_le_bytes());
        body.extend(self.size.to_le_bytes());
        body.extend(self.incarnation.to_le_bytes());
        body.extend(self.process);
        body.extend(self.attempt.to_le_bytes());
        body.extend(self.nonce);
        body
    }

    /// Encodes the proof as a body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = self.claims();
        body.extend(self.mac);
        body
    }

    /// Decodes a body. Returns `Ok(Err(version))` for a proof of another version.
    ///
    /// # Errors
    /// The body is not a proof.
    pub fn decode(body: &[u8]) -> Result<Result<Proof, u16>, Malformed> {
        let mut cursor = Cursor(body);
        if cursor.array()? != *MAGIC {
            return Err(Malformed("no proof of a node"));
        }
        let version = u16::from_le_bytes(cursor.array()?);
        if version != VERSION {
            return Ok(Err(version));
        }
        let rank = u32::from_le_bytes(cursor.array()?);
        let size = u32::from_le_bytes(cursor.array()?);
        let incarnation = u64::from_le_bytes(cursor.array()?);
        let (process, attempt) = (cursor.array()?, u32::from_le_bytes(cursor.array()?));
        let (nonce, mac) = (cursor.array()?, cursor.array()?);
        cursor.end()?;
        Ok(Ok(Proof { version, rank, size, incarnation, process, attempt, nonce, mac }))
    }
}

/// End of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The node is accepted. The value is the store's proof.
    Welcome([u8; 32]),
    /// The node is refused.
    Refused {
        /// [`Proof::refusal`] if the node has proven that it knows the secret, else zeros.
        mac: [u8; 32],
        /// Cause of the refusal.
        why: String,
    },
}

impl Verdict {
    /// Encodes the verdict as a body.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Verdict::Welcome(mac) => [&[0][..], mac].concat(),
            Verdict::Refused { mac, why } => [&[1][..], mac, clip(why).as_bytes()].concat(),
        }
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// The body is not a verdict.
    pub fn decode(body: &[u8]) -> Result<Verdict, Malformed> {
        let mut cursor = Cursor(body);
        match cursor.array()? {
            [0] => {
                let mac = cursor.array()?;
                cursor.end()?;
                Ok(Verdict::Welcome(mac))
            }
            [1] => Ok(Verdict::Refused { mac: cursor.array()?, why: cursor.text()? }),
            _ => Err(Malformed("unknown verdict")),
        }
    }
}

/// Request of a node to the store. Time limits are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Publishes a value.
    Put(String, Vec<u8>),
    /// Waits for a value.
    Get(String, u64),
    /// Waits for all nodes.
    Fence(String, u64),
    /// Ends the job.
    Abort(String),
    /// Asks the launcher to let the other nodes go on after the death of a node. Answered by
    /// `Done`.
    KeepGoing,
    /// Asks the node of this rank a question, with a time limit. Answered by `Done` with the text.
    Ask(u32, u64, String),
    /// Answers the question of this number ([`Reply::Question`]). The store does not reply.
    Answer(u32, String),
}

impl Request {
    /// Encodes the request as a body. `id` comes back with the reply.
    #[must_use]
    pub fn encode(&self, id: u32) -> Vec<u8> {
        let mut body = id.to_le_bytes().to_vec();
        // Callers check keys against KEY_MAX, which fits one byte.
        let put_key = |body: &mut Vec<u8>, key: &str| {
            let key = &key[..key.floor_char_boundary(KEY_MAX)];
            body.push(key.len() as u8);
            body.extend(key.as_bytes());
        };
        match self {
            Request::Put(key, value) => {
                body.push(1);
                put_key(&mut body, key);
                body.extend(value);
            }
            Request::Get(key, limit) | Request::Fence(key, limit) => {
                body.push(if matches!(self, Request::Get(..)) { 2 } else { 3 });
                put_key(&mut body, key);
                body.extend(limit.to_le_bytes());
            }
            Request::Abort(why) => {
                body.push(4);
                body.extend(clip(why).as_bytes());
            }
            Request::KeepGoing => body.push(5),
            Request::Ask(rank, limit, question) => {
                body.push(6);
                body.extend(rank.to_le_bytes());
                body.extend(limit.to_le_bytes());
                body.extend(clip_to(question, QUESTION_MAX).as_bytes());
            }
            Request::Answer(number, answer) => {
                body.push(7);
                body.extend(number.to_le_bytes());
                body.extend(clip_to(answer, QUESTION_MAX).as_bytes());
            }
        }
        body
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// The body is not a request.
    pub fn decode(body: &[u8]) -> Result<(u32, Request), Malformed> {
        let mut cursor = Cursor(body);
        let id = u32::from_le_bytes(cursor.array()?);
        let [operation] = cursor.array()?;
        let request = match operation {
            1 => Request::Put(cursor.key()?, cursor.rest(VALUE_MAX)?.to_vec()),
            2 => Request::Get(cursor.key()?, u64::from_le_bytes(cursor.array()?)),
            3 => Request::Fence(cursor.key()?, u64::from_le_bytes(cursor.array()?)),
            4 => Request::Abort(cursor.text()?),
            5 => Request::KeepGoing,
            6 => {
                let (rank, limit) =
                    (u32::from_le_bytes(cursor.array()?), u64::from_le_bytes(cursor.array()?));
                Request::Ask(rank, limit, cursor.long_text(QUESTION_MAX)?)
            }
            7 => Request::Answer(
                u32::from_le_bytes(cursor.array()?),
                cursor.long_text(QUESTION_MAX)?,
            ),
            _ => return Err(Malformed("unknown operation")),
        };
        cursor.end()?;
        Ok((id, request))
    }
}

/// Request number of unasked messages.
pub const UNASKED: u32 = 0;

/// Reply of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The request is done. The value is that of a get.
    Done(Vec<u8>),
    /// The request is not allowed, for this reason.
    Refused(String),
    /// The time limit passed. The text names what was missing.
    TimedOut(String),
    /// The job was ended, for this reason. Also sent unasked.
    Aborted(String),
    /// A node that is needed for the answer has ended.
    Gone(NodeEnd),
    /// The process of a node has ended. Sent unasked.
    Ended(NodeEnd),
    /// A question to this node. The number in front of the body is that of the question.
    Question(String),
}

impl Reply {
    /// Encodes the reply as a body.
    #[must_use]
    pub fn encode(&self, id: u32) -> Vec<u8> {
        let end;
        let (code, rest) = match self {
            Reply::Done(value) => (0, &value[..]),
            Reply::Refused(why) => (1, clip(why).as_bytes()),
            Reply::TimedOut(missing) => (2, clip(missing).as_bytes()),
            Reply::Aborted(why) => (3, clip(why).as_bytes()),
            Reply::Gone(of) | Reply::Ended(of) => {
                end = encode_end(of);
                (if matches!(self, Reply::Gone(_)) { 4 } else { 5 }, &end[..])
            }
            Reply::Question(question) => (6, clip_to(question, QUESTION_MAX).as_bytes()),
        };
        [&id.to_le_bytes()[..], &[code], rest].concat()
    }

    /// Decodes a body.
    ///
    /// # Errors
    /// The body is not a reply.
    pub fn decode(body: &[u8]) -> Result<(u32, Reply), Malformed> {
        let mut cursor = Cursor(body);
        let id = u32::from_le_bytes(cursor.array()?);
        let [code] = cursor.array()?;
        let reply = match code {
            0 => Reply::Done(cursor.rest(VALUE_MAX)?.to_vec()),
            1 => Reply::Refused(cursor.text()?),
            2 => Reply::TimedOut(cursor.text()?),
            3 => Reply::Aborted(cursor.text()?),
            4 => Reply::Gone(cursor.node_end()?),
            5 => Reply::Ended(cursor.node_end()?),
            6 => Reply::Question(cursor.long_text(QUESTION_MAX)?),
            _ => return Err(Malformed("unknown reply")),
        };
        Ok((id, reply))
    }
}
