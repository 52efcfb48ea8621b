//! Serialisation of a record as a line of JSON.

use serde::{Deserialize, Serialize};

use crate::check::{check_texts, check_values};
use crate::error::RecordError;
use crate::record::{RECORD_VERSION, TuningRecord};

#[derive(Deserialize)]
struct VersionProbe {
    version: u32,
}

#[derive(Serialize)]
struct RecordLine<'a> {
    version: u32,
    #[serde(flatten)]
    record: &'a TuningRecord,
}

impl TuningRecord {
    /// Returns the record as one line of JSON, without line end, after checking that it can be read
    /// back.
    ///
    /// Equal records give equal lines, and [`from_line`](Self::from_line) followed by `to_line`
    /// changes nothing, because numbers are written with enough digits to be read back exactly.
    pub fn to_line(&self) -> Result<String, RecordError> {
        check_values(self)?;
        check_texts(self)?;
        let line = RecordLine { version: RECORD_VERSION, record: self };
        let text = serde_json::to_string(&line).map_err(|e| RecordError::Malformed(e.to_string()))?;
        Self::from_line(&text)?;
        Ok(text)
    }

    /// Parses a record from one line of JSON. Unknown fields are ignored. Fails for a newer record
    /// version, and for values that no measurement can produce: a time that is not positive, a
    /// wrong output, an invalid workload.
    pub fn from_line(line: &str) -> Result<Self, RecordError> {
        let malformed = |e: serde_json::Error| RecordError::Malformed(e.to_string());
        let VersionProbe { version } = serde_json::from_str(line).map_err(malformed)?;
        if version > RECORD_VERSION {
            return Err(RecordError::NewerVersion { found: version, supported: RECORD_VERSION });
        }
        let record: Self = serde_json::from_str(line).map_err(malformed)?;
        check_values(&record)?;
        Ok(record)
    }

    /// Parses a record from an untrusted line, see [`from_line`](Self::from_line). Also fails if
    /// its texts are too long or have control characters.
    pub(crate) fn from_foreign_line(line: &str) -> Result<Self, RecordError> {
        let record = Self::from_line(line)?;
        check_texts(&record)?;
        Ok(record)
    }
}
