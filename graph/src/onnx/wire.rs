//! Validation of protobuf messages before parsing.
//!
//! The parser trusts lengths and recurses into nested messages: a length beyond the file would be
//! allocated, and deep nesting would overflow the stack. So lengths and depth are checked first.

use super::error::ImportError;

/// Maximum nesting depth of messages. A plain model has 8 levels, and each nested graph adds 3.
const DEEPEST: usize = 32;

/// Maximum number of messages; each costs the parser some hundred bytes.
const MOST_MESSAGES: usize = 1 << 20;

/// Maximum number of names in the inputs and outputs of nodes; each may become a step, which takes
/// some kilobytes.
const MOST_NAMES: usize = 1 << 20;

/// Messages of `onnx.proto` that the parser reads.
#[derive(Clone, Copy, PartialEq)]
enum Message {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    ValueInfo,
    Type,
    TensorType,
    SequenceType,
    Shape,
    /// A message without nested messages.
    Flat,
}

/// Content of a length-delimited field.
enum FieldContent {
    Message(Message),
    /// Packed numbers of this size in bytes.
    Fixed(usize),
    Varints,
    /// Name of a tensor that a node reads or computes.
    Name,
    Bytes,
}

fn content_of(message: Message, field: u64) -> FieldContent {
    use Message::*;
    FieldContent::Message(match (message, field) {
        (Model, 7) | (Attribute, 6) => Graph,
        (Model, 8 | 14) | (Tensor, 13) | (Shape, 1) => Flat,
        (Graph, 1) => Node,
        (Graph, 5) | (Attribute, 5) => Tensor,
        (Graph, 11..=13) => ValueInfo,
        (Node, 5) => Attribute,
        (ValueInfo, 2) | (SequenceType, 1) => Type,
        (Type, 1) => TensorType,
        (Type, 4) => SequenceType,
        (TensorType, 2) => Shape,
        (Tensor, 4) => return FieldContent::Fixed(4),
        (Tensor, 10) => return FieldContent::Fixed(8),
        (Tensor, 5 | 7) => return FieldContent::Varints,
        (Node, 1 | 2) => return FieldContent::Name,
        _ => return FieldContent::Bytes,
    })
}

/// Checks that every length stays within its message, and that messages are not nested too deeply.
pub(super) fn check(bytes: &[u8]) -> Result<(), ImportError> {
    let mut reader = WireReader { bytes, at: 0 };
    let mut open = vec![(Message::Model, bytes.len())];
    let (mut messages, mut names) = (1, 0);

    while let Some(&(message, end)) = open.last() {
        // The innermost message ends here.
        if reader.at == end {
            open.pop();
            continue;
        }

        let tag = reader.varint(end)?;
        match tag & 7 {
            0 => reader.varint(end).map(drop)?,
            1 => reader.skip(8, end)?,
            5 => reader.skip(4, end)?,
            2 => {
                let length = reader.varint(end)?;
                let inner = usize::try_from(length).ok().filter(|&length| length <= end - reader.at);
                let inner = inner.map(|length| reader.at + length);
                let inner = inner.ok_or_else(|| reader.wrong("a length exceeds the enclosing message"))?;
                match content_of(message, tag >> 3) {
                    FieldContent::Message(message) => {
                        open.push((message, inner));
                        messages += 1;
                    }
                    FieldContent::Fixed(size) if !(inner - reader.at).is_multiple_of(size) => {
                        return Err(reader.wrong("a packed field ends within a number"));
                    }
                    FieldContent::Varints => {
                        while reader.at < inner {
                            reader.varint(inner)?;
                        }
                    }
                    FieldContent::Name => {
                        names += 1;
                        reader.at = inner;
                    }
                    FieldContent::Fixed(_) | FieldContent::Bytes => reader.at = inner,
                }
            }
            _ => return Err(reader.wrong("unknown wire type")),
        }
        if open.len() > DEEPEST || messages > MOST_MESSAGES {
            return Err(reader.wrong("too many messages"));
        }
        if names > MOST_NAMES {
            return Err(reader.wrong("too many inputs and outputs of nodes"));
        }
    }
    Ok(())
}

struct WireReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl WireReader<'_> {
    /// Reads a varint (7 bits per byte, least significant first) that ends before `end`.
    fn varint(&mut self, end: usize) -> Result<u64, ImportError> {
        const LONGEST: usize = 10;
        let mut value = 0;
        for (index, &byte) in self.bytes[self.at..end].iter().take(LONGEST).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.at += index + 1;
                return Ok(value);
            }
        }
        Err(self.wrong("unterminated varint"))
    }

    fn skip(&mut self, length: usize, end: usize) -> Result<(), ImportError> {
        if length > end - self.at {
            return Err(self.wrong("truncated message"));
        }
        self.at += length;
        Ok(())
    }

    fn wrong(&self, reason: &str) -> ImportError {
        ImportError::Malformed(format!("{reason} (byte {})", self.at))
    }
}
