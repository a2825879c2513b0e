//! CEL parser: builds the syntax tree from tokens.
//!
//! Macros are calls here; `lower` interprets them. An ambiguous grammar rule is read as in other CEL implementations,
//! so that an expression has one meaning everywhere. `tests` compares with one of them.

use super::CompileError;
use super::token::{self, Kind, Token};

/// Words that CEL reserves for host languages.
const RESERVED: &str = "as break const continue else for function if import let loop package namespace return var void \
                        while";

#[derive(PartialEq, Debug)]
pub(super) struct Part {
    /// Byte offset in the source: of an operator's sign, or of the beginning of anything else.
    pub(super) at: usize,
    pub(super) term: Term,
}

#[derive(PartialEq, Debug)]
pub(super) enum Term {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    Text(String),
    Name(String),
    Member(Box<Part>, String),
    Index(Box<Part>, Box<Part>),
    Call { of: Option<Box<Part>>, name: String, args: Vec<Part> },
    Not(Box<Part>),
    Negate(Box<Part>),
    And(Box<Part>, Box<Part>),
    Or(Box<Part>, Box<Part>),
    If(Box<Part>, Box<Part>, Box<Part>),
    Binary(Binary, Box<Part>, Box<Part>),
    List(Vec<Part>),
    Map(Vec<(Part, Part)>),
}

/// An operator that always evaluates both sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    /// `/` without truncation; the parser never creates it.
    Ratio,
    Remainder,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

impl Binary {
    /// Returns true if the result is a number, text or list, and not a truth value.
    pub(super) const fn is_arithmetic(self) -> bool {
        match self {
            Self::Add | Self::Subtract | Self::Multiply | Self::Divide | Self::Ratio | Self::Remainder => true,
            Self::Equal | Self::Unequal | Self::In => false,
            Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual => false,
        }
    }
}

/// Parses an expression.
pub(super) fn parse(source: &str) -> Result<Part, CompileError> {
    let tokens = token::read(source)?;
    let mut parser = Parser { tokens: &tokens, next: 0, end: source.len() };
    let whole = parser.expression()?;
    match parser.peek() {
        None => Ok(whole),
        Some(_) => Err(parser.unexpected("an operator")),
    }
}

struct Parser<'t> {
    tokens: &'t [Token<'t>],
    next: usize,
    /// Bytes of the source.
    end: usize,
}

type Parsed<T = Part> = Result<T, CompileError>;

/// Operation on two operands.
type Join = fn(Box<Part>, Box<Part>) -> Term;

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<&'t Kind<'t>> {
        self.tokens.get(self.next).map(|token| &token.kind)
    }

    /// Returns the byte at which the next token begins.
    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |token| token.at)
    }

    fn is_next(&self, sign: &str) -> bool {
        matches!(self.peek(), Some(Kind::Sign(next)) if *next == sign)
    }

    /// Consumes a sign if it is the next token, and returns its byte offset.
    fn take(&mut self, sign: &str) -> Option<usize> {
        let at = self.at();
        let is_next = self.is_next(sign);
        self.next += usize::from(is_next);
        is_next.then_some(at)
    }

    fn demand(&mut self, sign: &str) -> Result<(), CompileError> {
        self.take(sign).map(drop).ok_or_else(|| self.unexpected(&format!("`{sign}`")))
    }

    /// Consumes one of these operators, if it is the next token.
    fn operator(&mut self, known: &[(&str, Binary)]) -> Option<(usize, Binary)> {
        let at = self.at();
        let (Kind::Sign(next) | Kind::Word(next)) = self.peek()? else { return None };
        let (_, binary) = known.iter().find(|(sign, _)| sign == next)?;
        self.next += 1;
        Some((at, *binary))
    }

    fn expression(&mut self) -> Parsed {
        let condition = self.disjunction()?;
        let Some(at) = self.take("?") else { return Ok(condition) };
        let then = self.disjunction()?;
        self.demand(":")?;
        let other = self.expression()?;
        Ok(Part { at, term: Term::If(Box::new(condition), Box::new(then), Box::new(other)) })
    }

    fn disjunction(&mut self) -> Parsed {
        self.logic("||", Self::conjunction, Term::Or)
    }

    fn conjunction(&mut self) -> Parsed {
        self.logic("&&", Self::relation, Term::And)
    }

    fn logic(&mut self, sign: &str, operand: fn(&mut Self) -> Parsed, join: Join) -> Parsed {
        let first = operand(self)?;
        let mut rest = Vec::new();
        while let Some(at) = self.take(sign) {
            rest.push((at, operand(self)?));
        }
        Ok(balanced(first, rest, join))
    }

    fn relation(&mut self) -> Parsed {
        const RELATIONS: [(&str, Binary); 7] = [
            ("==", Binary::Equal),
            ("!=", Binary::Unequal),
            ("<", Binary::Less),
            ("<=", Binary::LessOrEqual),
            (">", Binary::Greater),
            (">=", Binary::GreaterOrEqual),
            ("in", Binary::In),
        ];
        self.chain(&RELATIONS, Self::sum)
    }

    fn sum(&mut self) -> Parsed {
        self.chain(&[("+", Binary::Add), ("-", Binary::Subtract)], Self::product)
    }

    fn product(&mut self) -> Parsed {
        self.chain(&[("*", Binary::Multiply), ("/", Binary::Divide), ("%", Binary::Remainder)], Self::unary)
    }

    /// Reads left-associative operands and operators.
    fn chain(&mut self, operators: &[(&str, Binary)], operand: fn(&mut Self) -> Parsed) -> Parsed {
        let mut left = operand(self)?;
        while let Some((at, binary)) = self.operator(operators) {
            let right = operand(self)?;
            left = Part { at, term: Term::Binary(binary, Box::new(left), Box::new(right)) };
        }
        Ok(left)
    }

    /// Reads any number of `!`, or of `-`, before an operand; pairs cancel out. The two signs cannot be mixed.
    fn unary(&mut self) -> Parsed {
        let at = self.at();
        let (sign, join): (_, fn(Box<Part>) -> Term) = match self.peek() {
            Some(Kind::Sign("!")) => ("!", Term::Not),
            Some(Kind::Sign("-")) if !self.is_signed_number() => ("-", Term::Negate),
            _ => return self.operand(),
        };
        let mut count = 0_usize;
        while self.take(sign).is_some() {
            count += 1;
        }
        let of = self.operand()?;
        Ok(if count.is_multiple_of(2) { of } else { Part { at, term: join(Box::new(of)) } })
    }

    fn is_signed_number(&self) -> bool {
        let after = self.tokens.get(self.next + 1).map(|token| &token.kind);
        self.is_next("-") && matches!(after, Some(Kind::Int(_) | Kind::Double(_)))
    }

    /// Reads a value and its selectors.
    fn operand(&mut self) -> Parsed {
        let mut part = self.primary()?;
        loop {
            let at = self.at();
            if self.take(".").is_some() {
                let at = self.at();
                let name = self.member_name()?;
                part = match self.take("(") {
                    Some(_) => {
                        let args = self.arguments()?;
                        Part { at, term: Term::Call { of: Some(Box::new(part)), name, args } }
                    }
                    None => Part { at: part.at, term: Term::Member(Box::new(part), name) },
                };
            } else if self.take("[").is_some() {
                let key = self.expression()?;
                self.demand("]")?;
                part = Part { at, term: Term::Index(Box::new(part), Box::new(key)) };
            } else if self.is_next("{") && matches!(part.term, Term::Name(_) | Term::Member(..)) {
                let message = "a message cannot be used here".to_owned();
                return Err(CompileError { code: "cel_unsupported", offset: Some(part.at), message });
            } else {
                return Ok(part);
            }
        }
    }

    fn member_name(&mut self) -> Result<String, CompileError> {
        match self.peek() {
            Some(Kind::Word(word @ ("true" | "false" | "null" | "in"))) => {
                let message = format!("`{word}` is a word of the language; a member of this name is [\"{word}\"]");
                Err(CompileError { code: "cel_syntax", offset: Some(self.at()), message })
            }
            Some(Kind::Word(word)) => {
                self.next += 1;
                Ok((*word).to_owned())
            }
            _ => Err(self.unexpected("the name of a member")),
        }
    }

    fn primary(&mut self) -> Parsed {
        let at = self.at();
        if self.is_signed_number() {
            self.next += 1;
            return self.number(at, "-");
        }
        let term = match self.peek() {
            Some(Kind::Sign("(")) => {
                self.next += 1;
                let inner = self.expression()?;
                self.demand(")")?;
                return Ok(inner);
            }
            Some(Kind::Sign("[")) => {
                self.next += 1;
                Term::List(self.listed("]", Self::expression)?)
            }
            Some(Kind::Sign("{")) => {
                self.next += 1;
                Term::Map(self.listed("}", Self::entry)?)
            }
            Some(Kind::Sign(".")) => {
                self.next += 1;
                return match self.peek() {
                    Some(Kind::Word(word)) => self.name(at, word, "."),
                    _ => Err(self.unexpected("a name")),
                };
            }
            Some(Kind::Word(word)) => return self.name(at, word, ""),
            Some(Kind::Int(_) | Kind::UInt(_) | Kind::Double(_)) => return self.number(at, ""),
            Some(Kind::Text(text)) => {
                self.next += 1;
                Term::Text(text.clone())
            }
            Some(Kind::Sign(_)) | None => return Err(self.unexpected("a value")),
        };
        Ok(Part { at, term })
    }

    /// Reads the word that comes next: a literal, a variable or a call.
    fn name(&mut self, at: usize, word: &str, dot: &str) -> Parsed {
        let term = match word {
            "true" | "false" | "null" if !dot.is_empty() => return Err(self.unexpected("a name")),
            "in" => return Err(self.unexpected("a value")),
            "true" => Term::Bool(true),
            "false" => Term::Bool(false),
            "null" => Term::Null,
            word if RESERVED.split(' ').any(|reserved| reserved == word) => {
                let message = format!("`{word}` is a reserved word, and names nothing");
                return Err(CompileError { code: "cel_syntax", offset: Some(self.at()), message });
            }
            word => Term::Name(format!("{dot}{word}")),
        };
        self.next += 1;
        match term {
            Term::Name(name) if self.take("(").is_some() => {
                let args = self.arguments()?;
                Ok(Part { at, term: Term::Call { of: None, name, args } })
            }
            term => Ok(Part { at, term }),
        }
    }

    fn number(&mut self, at: usize, sign: &str) -> Parsed {
        fn digits(text: &str) -> (u32, &str) {
            text.strip_prefix("0x").map_or((10, text), |hex| (16, hex))
        }
        let term = match self.peek() {
            Some(Kind::Int(text)) => {
                let (radix, digits) = digits(text);
                i64::from_str_radix(&format!("{sign}{digits}"), radix).ok().map(Term::Int).ok_or("int")
            }
            Some(Kind::UInt(text)) => {
                let (radix, digits) = digits(text);
                u64::from_str_radix(digits, radix).ok().map(Term::UInt).ok_or("uint")
            }
            Some(Kind::Double(text)) => {
                let number = format!("{sign}{text}").parse().ok().filter(|number: &f64| number.is_finite());
                number.map(Term::Double).ok_or("double")
            }
            _ => return Err(self.unexpected("a number")),
        };
        let term = term.map_err(|kind| {
            let message = format!("invalid {kind} literal: the number is out of range");
            CompileError { code: "cel_syntax", offset: Some(self.at()), message }
        })?;
        self.next += 1;
        Ok(Part { at, term })
    }

    fn arguments(&mut self) -> Result<Vec<Part>, CompileError> {
        let mut args = Vec::new();
        if self.take(")").is_some() {
            return Ok(args);
        }
        loop {
            args.push(self.expression()?);
            if self.take(",").is_none() {
                self.demand(")")?;
                return Ok(args);
            }
        }
    }

    /// Reads comma-separated items up to the closing bracket; a trailing comma is allowed.
    fn listed<T>(&mut self, close: &str, mut read: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut listed = Vec::new();
        if !self.is_next(",") {
            while !self.is_next(close) {
                listed.push(read(self)?);
                if !self.is_next(",") {
                    break;
                }
                // A double comma, or a comma without items, is reported below.
                let after = self.tokens.get(self.next + 1).map(|token| &token.kind);
                if matches!(after, Some(Kind::Sign(sign)) if *sign == close) {
                    break;
                }
                self.next += 1;
            }
        }
        self.next += usize::from(self.is_next(","));
        self.demand(close)?;
        Ok(listed)
    }

    fn entry(&mut self) -> Result<(Part, Part), CompileError> {
        let key = self.expression()?;
        self.demand(":")?;
        Ok((key, self.expression()?))
    }

    /// Builds the error for an unexpected token.
    fn unexpected(&self, expected: &str) -> CompileError {
        let word = |index: Option<usize>| match index.and_then(|index| self.tokens.get(index)).map(|token| &token.kind)
        {
            Some(Kind::Word(word)) => Some(*word),
            _ => None,
        };
        let sign = |word: Option<&str>| match word {
            Some("and") => Some("&&"),
            Some("or") => Some("||"),
            Some("not") => Some("!"),
            Some("is") => Some("=="),
            _ => None,
        };
        let (next, before) = (word(Some(self.next)), word(self.next.checked_sub(1)));
        let instead = [before, next].into_iter().find_map(|word| Some((word?, sign(word)?)));
        let instead = instead.map_or_else(String::new, |(word, sign)| format!("; for `{word}` write {sign}"));
        let found = match self.peek() {
            None => "the expression ends".to_owned(),
            Some(Kind::Word(word)) => format!("`{word}` stands"),
            Some(Kind::Sign(sign)) => format!("`{sign}` stands"),
            Some(Kind::Text(_)) => "a string stands".to_owned(),
            Some(Kind::Int(_) | Kind::UInt(_) | Kind::Double(_)) => "a number stands".to_owned(),
        };
        let message = format!("{found} where {expected} is expected{instead}");
        CompileError { code: "cel_syntax", offset: Some(self.at()), message }
    }
}

/// Joins the operands of an `&&` or `||` chain in a balanced tree, with a depth logarithmic in the chain's length.
fn balanced(first: Part, mut rest: Vec<(usize, Part)>, join: Join) -> Part {
    let after = rest.split_off((rest.len() / 2 + 1).min(rest.len()));
    let Some((at, middle)) = rest.pop() else { return first };
    let (left, right) = (balanced(first, rest, join), balanced(middle, after, join));
    Part { at, term: join(Box::new(left), Box::new(right)) }
}
