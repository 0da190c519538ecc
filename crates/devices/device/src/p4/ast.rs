//! A program as it is written.

use crate::p4::Place;

/// A name where it stands.
#[derive(Clone, Debug)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Where.
    pub place: Place,
}

/// A type as it is written.
#[derive(Clone, Debug)]
pub enum Type {
    /// `bit<N>`.
    Bits(Box<Expr>, Place),
    /// `bool`.
    Bool,
    /// Anything that has a name.
    Named(Name),
}

/// Operators of two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    Or,
    And,
    Equal,
    Differ,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    BitOr,
    BitXor,
    BitAnd,
    Left,
    Right,
    Add,
    Subtract,
    AddSaturated,
    SubtractSaturated,
    Concatenate,
    Multiply,
}

/// Operators of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    Not,
    Complement,
    Negate,
}

/// An expression and where it begins.
#[derive(Clone, Debug)]
pub struct Expr {
    /// Kind of the expression.
    pub kind: ExprKind,
    /// Where.
    pub place: Place,
}

/// Kind of an expression.
#[derive(Clone, Debug)]
pub enum ExprKind {
    Number(u128, Option<u32>),
    Bool(bool),
    Name(String),
    Member(Box<Expr>, Name),
    Slice(Box<Expr>, Box<Expr>, Box<Expr>),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    Choose(Box<Expr>, Box<Expr>, Box<Expr>),
    Cast(Type, Box<Expr>),
    /// With type arguments, which only `lookahead` has.
    Call(Box<Expr>, Vec<Type>, Vec<Expr>),
    List(Vec<Expr>),
    /// `value &&& mask`.
    Mask(Box<Expr>, Box<Expr>),
    /// `default` or `_`.
    Any,
}

/// A statement.
#[derive(Clone, Debug)]
pub enum Statement {
    Block(Vec<Self>),
    Assign(Expr, Expr),
    Call(Expr),
    If(Expr, Box<Self>, Option<Box<Self>>),
    Variable(Type, Name, Option<Expr>),
    Constant(Constant),
    Return(Place),
    Exit(Place),
    Empty,
}

/// `const T NAME = …;`
#[derive(Clone, Debug)]
pub struct Constant {
    pub kind: Type,
    pub name: Name,
    pub value: Expr,
}

/// Which way an argument goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    None,
    In,
    Out,
    InOut,
}

/// A parameter.
#[derive(Clone, Debug)]
pub struct Parameter {
    pub direction: Direction,
    pub kind: Type,
    pub name: Name,
}

/// A field of a header or a struct.
#[derive(Clone, Debug)]
pub struct Field {
    pub kind: Type,
    pub name: Name,
}

/// A state of a parser.
#[derive(Clone, Debug)]
pub struct State {
    pub name: Name,
    pub statements: Vec<Statement>,
    pub transition: Transition,
}

/// Next state of a state.
#[derive(Clone, Debug)]
pub enum Transition {
    To(Name),
    Select(Vec<Expr>, Vec<(Vec<Expr>, Name)>, Place),
}

/// An action.
#[derive(Clone, Debug)]
pub struct Action {
    pub name: Name,
    pub parameters: Vec<Parameter>,
    pub body: Vec<Statement>,
}

/// A table. Entries are constant.
#[derive(Clone, Debug)]
pub struct Table {
    pub name: Name,
    pub keys: Vec<(Expr, Name)>,
    pub actions: Vec<Name>,
    pub default: Option<Expr>,
    pub entries: Vec<(Vec<Expr>, Expr)>,
}

/// Something of a control before its `apply`.
#[derive(Clone, Debug)]
pub enum Local {
    Action(Action),
    Table(Table),
    /// `register<bit<N>>(size) name;`
    Register(Type, Expr, Name),
    /// `Other() name;`
    Control(Name, Name),
    Variable(Type, Name, Option<Expr>),
    Constant(Constant),
}

/// A parser or a control.
#[derive(Clone, Debug)]
pub struct Block {
    pub name: Name,
    pub parameters: Vec<Parameter>,
    pub locals: Vec<Local>,
    pub body: Body,
}

/// Body of a block.
#[derive(Clone, Debug)]
pub enum Body {
    Parser(Vec<State>),
    Control(Vec<Statement>),
}

/// Something of a program.
#[derive(Clone, Debug)]
pub enum Declaration {
    Constant(Constant),
    Alias(Type, Name),
    Header(Name, Vec<Field>),
    Struct(Name, Vec<Field>),
    Block(Block),
    /// `V1Switch(A(), …) main;`
    Package(Name, Vec<Expr>, Name),
}
