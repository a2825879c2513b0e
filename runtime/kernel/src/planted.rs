//! Bugs that were put in on purpose: a simulator that does not find them proves nothing by finding no others.
//!
//! Only with the feature `planted`, which tests alone ask for, and only where a test has switched one on. Without it
//! `is` is `false` at compile time, and nothing of this is in the program.

/// A bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// The scheduler passes over the last of several invocations that a commit gives rise to.
    LostInvocation,
    /// The scheduler passes over an invocation that alone comes of something.
    LoneInvocation,
    /// The scheduler makes one call more at once than it may.
    OneCallMore,
    /// The scheduler makes one call less at once than it may.
    OneCallLess,
    /// The scheduler takes the newest of what waits instead of the oldest.
    LastComeFirst,
    /// An invocation has one attempt more than it may.
    OneAttemptMore,
    /// An attempt does not wait for what is kept for others.
    Haste,
    /// A board stands still while a person is asked.
    Impatience,
    /// A board goes on standing still when what it waited for may go on.
    DeepSleep,
    /// A breaker does not forget refusals when its branch commits.
    LongMemory,
    /// A breaker stops a branch of which only the views should be reduced.
    HarshBreaker,
    /// A breaker moves one refusal too late.
    SlowBreaker,
    /// Freshness looks at what is written, and not at what was read.
    ReadsForgotten,
    /// Freshness takes what came after the view for what was there.
    TargetsForgotten,
    /// The journal's record of a commit lacks the last of several operations.
    ShortRecord,
    /// The journal tells of no conditions without a truth value.
    SilentRecord,
    /// Calls are made before the record of them is durable.
    EarlyEffects,
    /// Whoever proposed is told what came of it before that is durable.
    EarlyWord,
    /// An append that was refused is taken for one that was done.
    RefusalOverheard,
    /// Recovery takes up one record less than there are.
    OneRecordLess,
    /// Who takes a board over does not see that the last of several calls is lost.
    LossOverlooked,
    /// A budget does not count what calls under way may take.
    Overdraft,
    /// A call that is never answered costs nothing.
    FreeOfCharge,
    /// What is kept for the next try does not include what that will write.
    NarrowReservation,
    /// What is kept for the next try is kept for somebody else as well.
    SharedReservation,
    /// An attempt that a provider did not take counts.
    DeferralCharged,
    /// A board waits for its provider for ever.
    EndlessPatience,
    /// A retry leaves stopped branches stopped.
    RetryStaysStopped,
    /// Lines that come into a file do not shift those behind them.
    InsertionsOverlooked,
    /// What was read right behind or right before what comes into a file has changed with it.
    EdgesTouched,
    /// Of a file that is gone nothing has changed.
    DeletionOverlooked,
    /// An edit of which it is not known what it did has done nothing.
    UnknownOverlooked,
    /// A board remembers an edit of a file less than it says.
    OneEditLess,
    /// Lines are written over that their author has not seen.
    LinesUnseen,
    /// An edit is checked against what its author has read of the files that it changes, and of no others.
    OwnFilesOnly,
    /// A file that is kept for somebody may be edited by others.
    FileNotKept,
    /// A file that is made again begins with another first version.
    VersionsAnew,
    /// A file that was forgotten begins with the first version when it is made again.
    FloorOverlooked,
}

impl Bug {
    /// Those of files, which the interleavings find.
    pub const OF_FILES: [Self; 11] = [
        Self::SharedReservation,
        Self::InsertionsOverlooked,
        Self::EdgesTouched,
        Self::DeletionOverlooked,
        Self::UnknownOverlooked,
        Self::OneEditLess,
        Self::LinesUnseen,
        Self::OwnFilesOnly,
        Self::FileNotKept,
        Self::VersionsAnew,
        Self::FloorOverlooked,
    ];

    /// Those that the simulator finds.
    pub const ALL: [Self; 28] = [
        Self::LostInvocation,
        Self::LoneInvocation,
        Self::OneCallMore,
        Self::OneCallLess,
        Self::LastComeFirst,
        Self::OneAttemptMore,
        Self::Haste,
        Self::Impatience,
        Self::DeepSleep,
        Self::LongMemory,
        Self::HarshBreaker,
        Self::SlowBreaker,
        Self::ReadsForgotten,
        Self::TargetsForgotten,
        Self::ShortRecord,
        Self::SilentRecord,
        Self::EarlyEffects,
        Self::EarlyWord,
        Self::RefusalOverheard,
        Self::OneRecordLess,
        Self::LossOverlooked,
        Self::DeferralCharged,
        Self::EndlessPatience,
        Self::RetryStaysStopped,
        Self::Overdraft,
        Self::FreeOfCharge,
        Self::NarrowReservation,
        Self::SharedReservation,
    ];
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Switches a bug on for what this thread does from now on, or all of them off.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether a bug is switched on.
#[cfg(feature = "planted")]
pub(crate) fn is(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// No bug is.
#[cfg(not(feature = "planted"))]
pub(crate) const fn is(_: Bug) -> bool {
    false
}
