//! A record as a line of JSON.

use serde::{Deserialize, Serialize};

use crate::check::{check_texts, check_values};
use crate::error::RecordError;
use crate::record::{RECORD_VERSION, TuningRecord};

#[derive(Deserialize)]
struct VersionProbe {
    version: u32,
}

#[derive(Serialize)]
struct Line<'a> {
    version: u32,
    #[serde(flatten)]
    record: &'a TuningRecord,
}

impl TuningRecord {
    /// The record as one line of JSON, without the line end, after checking that it can be read
    /// back.
    ///
    /// Equal records yield equal lines, and [`from_line`](Self::from_line) followed by `to_line`
    /// changes nothing: numbers are written with as many digits as it takes to read the same number
    /// again.
    pub fn to_line(&self) -> Result<String, RecordError> {
        check_values(self)?;
        check_texts(self)?;
        let line = Line { version: RECORD_VERSION, record: self };
        let text = serde_json::to_string(&line).map_err(|e| RecordError::Malformed(e.to_string()))?;
        Self::from_line(&text)?;
        Ok(text)
    }

    /// Reads a record from one line of JSON. Unknown fields are passed over; a newer record version
    /// is an error, and so is what no measurement yields: a time that is not positive, an output
    /// that is wrong, a workload that makes no sense.
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

    /// [`from_line`](Self::from_line) of a line from elsewhere, which is an error, too, if its
    /// texts are absurdly long or have control characters.
    pub(crate) fn from_foreign_line(line: &str) -> Result<Self, RecordError> {
        let record = Self::from_line(line)?;
        check_texts(&record)?;
        Ok(record)
    }
}
