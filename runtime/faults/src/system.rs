//! Systems under test: PatchBoard and the two blackboards that it is compared with.

use patchboard_kernel::ablation::Mode;
use patchboard_kernel::rejection::code_enum;

code_enum! {
    /// A system under test.
    System {
        /// Contracts, validation, transactions.
        Patchboard = "patchboard",
        /// A blackboard of messages.
        Plain = "plain",
        /// A blackboard of JSON.
        Structured = "structured",
    }
}

impl System {
    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Patchboard => Mode::default(),
            Self::Plain => Mode::Plain {},
            Self::Structured => Mode::Structured {},
        }
    }
}
