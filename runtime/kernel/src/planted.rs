//! Planted bugs: a simulator that does not find them proves nothing by finding no others.
//!
//! Compiled in only with the feature `planted`, which only tests enable, and active only where a test switches one on.
//! Without the feature, `is` is `false` at compile time, and no code of this module remains.

/// Planted bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// The scheduler skips the last of several invocations triggered by one event.
    LostInvocation,
    /// The scheduler skips an invocation that is the only one triggered.
    LoneInvocation,
    /// The scheduler runs one call more at once than allowed.
    OneCallMore,
    /// The scheduler runs one call less at once than allowed.
    OneCallLess,
    /// The scheduler dispatches the newest queued invocation instead of the oldest.
    LastComeFirst,
    /// An invocation has one attempt more than allowed.
    OneAttemptMore,
    /// An attempt does not wait for places reserved for other workers.
    Haste,
    /// A board ends for lack of work while a person is asked.
    Impatience,
    /// A board that ended for lack of work stays ended when a breaker lets a queued invocation run again.
    DeepSleep,
    /// A breaker does not reset its rejections when its branch commits.
    LongMemory,
    /// A breaker stops a branch with views that should only be reduced.
    HarshBreaker,
    /// A breaker trips one rejection too late.
    SlowBreaker,
    /// Freshness checks written places, but not the read set.
    ReadsForgotten,
    /// Freshness does not detect changes of written places since the view.
    TargetsForgotten,
    /// The journal's record of a commit lacks the last of several operations.
    ShortRecord,
    /// The journal does not record conditions that could not be evaluated.
    SilentRecord,
    /// Calls are made before their records are durable.
    EarlyEffects,
    /// The proposer receives the verdict before it is durable.
    EarlyWord,
    /// A rejected append is treated as a successful one.
    RefusalOverheard,
    /// Recovery skips the last record.
    OneRecordLess,
    /// A takeover of a board does not mark the last of several calls as lost.
    LossOverlooked,
    /// A budget does not count the reservations of calls in progress.
    Overdraft,
    /// A call without an answer costs nothing.
    FreeOfCharge,
    /// The reservation for the next attempt excludes the places that it will write.
    NarrowReservation,
    /// A reservation for the next attempt ignores the reservations of other workers.
    SharedReservation,
    /// An attempt deferred by a provider counts.
    DeferralCharged,
    /// A board waits for its provider without limit.
    EndlessPatience,
    /// A retry leaves stopped branches stopped.
    RetryStaysStopped,
    /// Inserted lines do not shift the lines after them.
    InsertionsOverlooked,
    /// Lines next to an insertion count as changed.
    EdgesTouched,
    /// A removed file counts as unchanged.
    DeletionOverlooked,
    /// An edit with unknown effect counts as no change.
    UnknownOverlooked,
    /// A board remembers one edit of a file less than documented.
    OneEditLess,
    /// Lines can be overwritten that the author has not read.
    LinesUnseen,
    /// An edit is checked against its author's reads of the edited files only.
    OwnFilesOnly,
    /// A file reserved for one worker may be edited by others.
    FileNotKept,
    /// A re-created file starts over with its first version.
    VersionsAnew,
    /// A re-created file starts with version 1, even if its earlier versions were forgotten.
    FloorOverlooked,
}

impl Bug {
    /// Bugs in the handling of files, found by the interleaving tests.
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

    /// Bugs found by the simulator.
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

/// Switches a bug on for this thread, or all of them off.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Returns true if a bug is switched on.
#[cfg(feature = "planted")]
pub(crate) fn is(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Returns false, because bugs are compiled out.
#[cfg(not(feature = "planted"))]
pub(crate) const fn is(_: Bug) -> bool {
    false
}
