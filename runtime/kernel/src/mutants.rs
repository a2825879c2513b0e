//! Planted bugs: a simulator that does not find them proves nothing by finding no others.
//!
//! Compiled in only with the feature `planted`, which only tests enable, and active only where a test switches one on.
//! Without the feature, `is` is `false` at compile time, and no code of this module remains.

/// Declares the bugs by the tests that find them; the last of the simulator's is found by both.
macro_rules! mutants {
    (
        simulator { $($(#[$doc:meta])* $bug:ident,)* }
        both { $(#[$shared_doc:meta])* $shared:ident, }
        files { $($(#[$file_doc:meta])* $file_bug:ident,)* }
    ) => {
        /// Planted bug.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mutant {
            $($(#[$doc])* $bug,)*
            $(#[$shared_doc])* $shared,
            $($(#[$file_doc])* $file_bug,)*
        }

        impl Mutant {
            /// Bugs in the handling of files, found by the interleaving tests.
            pub const OF_FILES: &[Self] = &[Self::$shared, $(Self::$file_bug,)*];

            /// Bugs found by the simulator.
            pub const ALL: &[Self] = &[$(Self::$bug,)* Self::$shared];
        }
    };
}

mutants! {
    simulator {
        /// The scheduler skips the last of several invocations triggered by one event.
        SkipLastInvocation,
        /// The scheduler skips an invocation that is the only one triggered.
        SkipOnlyInvocation,
        /// The scheduler runs one call more at once than allowed.
        ExceedConcurrency,
        /// The scheduler runs one call less at once than allowed.
        UnderuseConcurrency,
        /// The scheduler dispatches the newest queued invocation instead of the oldest.
        LifoQueue,
        /// An invocation has one attempt more than allowed.
        ExtraAttempt,
        /// An attempt does not wait for places reserved for other workers.
        IgnoreReservations,
        /// A board ends for lack of work while a person is asked.
        EndWhileAwaitingPerson,
        /// A board that ended for lack of work stays ended when a breaker lets a queued invocation run again.
        StayEndedOnHalfOpen,
        /// A breaker does not reset its rejections when its branch commits.
        KeepRejectionStreak,
        /// A breaker stops a branch with views that should only be reduced.
        StopInsteadOfReduce,
        /// A breaker trips one rejection too late.
        LateTrip,
        /// Freshness checks written places, but not the read set.
        IgnoreReadSet,
        /// Freshness does not detect changes of written places since the view.
        IgnoreTargets,
        /// The journal's record of a commit lacks the last of several operations.
        DropLastOp,
        /// The journal does not record conditions that could not be evaluated.
        DropSkippedRecord,
        /// Calls are made before their records are durable.
        EarlyEffects,
        /// The proposer receives the verdict before it is durable.
        EarlyOutcome,
        /// A rejected append is treated as a successful one.
        IgnoreAppendError,
        /// Recovery skips the last record.
        SkipLastRecord,
        /// A takeover of a board does not mark the last of several calls as lost.
        MissLostCall,
        /// A budget does not count the reservations of calls in progress.
        IgnoreReservedBudget,
        /// A call without an answer costs nothing.
        UnchargedCall,
        /// The reservation for the next attempt excludes the places that it will write.
        NarrowReservation,
        /// An attempt deferred by a provider counts.
        DeferralCharged,
        /// A board waits for its provider without limit.
        UnlimitedProviderWait,
        /// A retry leaves stopped branches stopped.
        RetryStaysStopped,
    }
    both {
        /// A reservation for the next attempt ignores the reservations of other workers.
        SharedReservation,
    }
    files {
        /// Inserted lines do not shift the lines after them.
        IgnoreInsertions,
        /// Lines next to an insertion count as changed.
        TouchInsertionEdges,
        /// A removed file counts as unchanged.
        IgnoreDeletion,
        /// An edit with unknown effect counts as no change.
        IgnoreUnknownEdit,
        /// A board remembers one edit of a file less than documented.
        ForgetOldestEdit,
        /// Lines can be overwritten that the author has not read.
        AllowUnreadLines,
        /// An edit is checked against its author's reads of the edited files only.
        CheckEditedFilesOnly,
        /// A file reserved for one worker may be edited by others.
        IgnoreFileReservation,
        /// A re-created file starts over with its first version.
        RestartVersions,
        /// A re-created file starts with version 1, even if its earlier versions were forgotten.
        IgnoreMinVersion,
    }
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Switches a bug on for this thread, or all of them off.
#[cfg(feature = "planted")]
pub fn activate(bug: Option<Mutant>) {
    PLANTED.set(bug);
}

#[cfg(feature = "planted")]
pub(crate) fn is_active(bug: Mutant) -> bool {
    PLANTED.get() == Some(bug)
}

/// Returns false, because bugs are compiled out.
#[cfg(not(feature = "planted"))]
pub(crate) const fn is_active(_: Mutant) -> bool {
    false
}
