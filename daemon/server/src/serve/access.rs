//! Authorization: scopes of API tokens, and the permission that each request needs.

use std::fmt;
use std::str::FromStr;

use patchboard_kernel::id::{BoardId, WorkerName};

/// Scope of a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// All permissions, token management included.
    Admin,
    /// Read all boards; change nothing.
    Read,
    /// Read and operate one board, and act as any of its workers except persons.
    Board(BoardId),
    /// Act as one worker of one board: read its view, reply to its calls, propose in its name.
    Seat(BoardId, WorkerName),
    /// Answer the approvals and questions addressed to one person, on every board.
    Person(WorkerName),
    /// Read all boards, and answer what is addressed to one person.
    ReadAndPerson(WorkerName),
    /// Permissions of `Board` for one board, and answer what is addressed to one person on every board.
    BoardAndPerson(BoardId, WorkerName),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Permission {
    /// Administer the daemon: tokens, new boards.
    Administer,
    ViewAll,
    View(BoardId),
    Operate(BoardId),
    OperateOrActAs(BoardId),
    ViewAs(BoardId, WorkerName),
    ActAs(BoardId, WorkerName),
    /// Act as a person, that is a human worker of a board.
    ActAsPerson(BoardId, WorkerName),
    Authenticated,
}

impl Scope {
    /// Returns true if the scope grants a permission. No scope implies a person: only a token for that person grants
    /// [`Permission::ActAsPerson`].
    pub(crate) fn allows(&self, need: &Permission) -> bool {
        let allows_person = |me: &WorkerName| Self::Person(me.clone()).allows(need);
        match (self, need) {
            (Self::ReadAndPerson(me), _) => Self::Read.allows(need) || allows_person(me),
            (Self::BoardAndPerson(mine, me), _) => Self::Board(mine.clone()).allows(need) || allows_person(me),
            (Self::Seat(mine, me), Permission::ActAsPerson(board, person)) => mine == board && me == person,
            (Self::Person(me), Permission::ActAsPerson(_, person)) => me == person,
            (_, Permission::ActAsPerson(..)) => false,
            (Self::Admin, _) | (_, Permission::Authenticated) | (Self::Person(_), Permission::OperateOrActAs(_)) => {
                true
            }
            (Self::Read, Permission::ViewAll | Permission::View(_) | Permission::ViewAs(..)) => true,
            (Self::Board(mine), Permission::View(board) | Permission::Operate(board)) => mine == board,
            (Self::Board(mine) | Self::Seat(mine, _), Permission::OperateOrActAs(board)) => mine == board,
            (Self::Board(mine), Permission::ViewAs(board, _) | Permission::ActAs(board, _)) => mine == board,
            (Self::Seat(mine, me), Permission::ViewAs(board, worker) | Permission::ActAs(board, worker)) => {
                mine == board && me == worker
            }
            _ => false,
        }
    }

    /// Returns the person that the holder is on any board.
    pub(crate) const fn person(&self) -> Option<&WorkerName> {
        match self {
            Self::Person(person) | Self::ReadAndPerson(person) | Self::BoardAndPerson(_, person) => Some(person),
            Self::Admin | Self::Read | Self::Board(_) | Self::Seat(..) => None,
        }
    }

    /// Returns true if the holder may learn that a board exists.
    pub(crate) fn may_know(&self, board: &BoardId) -> bool {
        match self {
            Self::Admin | Self::Read | Self::ReadAndPerson(_) => true,
            Self::Board(mine) | Self::Seat(mine, _) | Self::BoardAndPerson(mine, _) => mine == board,
            Self::Person(_) => false,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admin => f.write_str("admin"),
            Self::Read => f.write_str("read"),
            Self::Board(board) => write!(f, "board:{board}"),
            Self::Seat(board, worker) => write!(f, "seat:{board}/{worker}"),
            Self::Person(person) => write!(f, "person:{person}"),
            Self::ReadAndPerson(person) => write!(f, "read+person:{person}"),
            Self::BoardAndPerson(board, person) => write!(f, "board:{board}+person:{person}"),
        }
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let board = |id: &str| match id.is_empty() || id.len() > 128 || id.contains('/') {
            true => Err(format!("{text} names no board")),
            false => Ok(BoardId::from(id)),
        };
        let person = |name: &str| match name {
            "" => Err(format!("{text} names no person: write person:NAME, as a blueprint names its human worker")),
            name => Ok(WorkerName::from(name)),
        };
        if let Some(name) = text.strip_prefix("person:") {
            return person(name).map(Self::Person);
        }
        match text.split_once("+person:") {
            Some(("read", name)) => return person(name).map(Self::ReadAndPerson),
            Some((of, name)) if let Some(id) = of.strip_prefix("board:") => {
                return Ok(Self::BoardAndPerson(board(id)?, person(name)?));
            }
            _ => {}
        }
        match (text, text.strip_prefix("board:"), text.strip_prefix("seat:")) {
            ("admin", ..) => Ok(Self::Admin),
            ("read", ..) => Ok(Self::Read),
            (_, Some(id), _) => Ok(Self::Board(board(id)?)),
            (_, _, Some(seat)) => match seat.split_once('/') {
                Some((id, worker)) if !worker.is_empty() => Ok(Self::Seat(board(id)?, WorkerName::from(worker))),
                _ => Err(format!("{text} names no worker: write seat:BOARD/WORKER")),
            },
            _ => Err(format!(
                "{text} is no scope: admin, read, board:BOARD, seat:BOARD/WORKER or person:NAME, or one of read and board:BOARD with \
                 +person:NAME"
            )),
        }
    }
}

#[cfg(test)]
mod tests;
