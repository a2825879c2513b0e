//! Errors of document storage.

/// Error of an operation on documents.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// A document is not as its writer expects. Nothing was changed.
    #[error("the document {key} of {collection} was changed by another writer")]
    Conflict {
        /// Collection.
        collection: String,
        /// Key within the collection.
        key: String,
    },
    /// A batch is beyond a limit. Nothing was changed.
    #[error("{0}")]
    Invalid(String),
    /// A written document read back differs. Nothing was changed.
    #[error("the document {key} of {collection} is not what was written; it was undone")]
    Unverified {
        /// Collection.
        collection: String,
        /// Key within the collection.
        key: String,
    },
    /// The file belongs to another program.
    #[error("{0} is no file of documents")]
    Foreign(String),
    /// The file has a newer format.
    #[error("{path} was written by a newer version of this program: format {found}")]
    Newer {
        /// Path of the file.
        path: String,
        /// Format of the file.
        found: i64,
    },
    /// The stored data is damaged.
    #[error("{0}")]
    Corrupt(String),
    /// Others kept the store in use for too long.
    #[error("another process holds the file: end it, or wait and try again")]
    Locked,
    /// Any other storage error.
    #[error("{0}")]
    Io(String),
}

impl DocumentError {
    /// Returns the stable code; messages may change, codes may not.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "document_conflict",
            Self::Invalid(_) => "bad_change",
            Self::Unverified { .. } => "document_unverified",
            Self::Foreign(_) => "not_documents",
            Self::Newer { .. } => "documents_newer",
            Self::Corrupt(_) => "documents_corrupt",
            Self::Locked => "documents_locked",
            Self::Io(_) => "documents_io",
        }
    }
}
