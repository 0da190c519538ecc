//! Abstract syntax tree of a P4 program.

use crate::p4::Place;

/// A name, with its place in the source.
#[derive(Clone, Debug)]
pub struct Name {
    pub text: String,
    /// Place of the first character.
    pub place: Place,
}

/// A type as written, before names are resolved.
#[derive(Clone, Debug)]
pub enum Type {
    /// `bit<N>`.
    Bits(Box<Expr>, Place),
    /// `bool`.
    Bool,
    /// A type name.
    Named(Name),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOperator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    BitOr,
    BitXor,
    BitAnd,
    ShiftLeft,
    ShiftRight,
    Add,
    Subtract,
    AddSaturated,
    SubtractSaturated,
    Concatenate,
    Multiply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOperator {
    Not,
    Complement,
    Negate,
}

/// An expression, with its place in the source.
#[derive(Clone, Debug)]
pub struct Expr {
    pub kind: ExprKind,
    /// Place of the first character.
    pub place: Place,
}

#[derive(Clone, Debug)]
pub enum ExprKind {
    Number(u128, Option<u32>),
    Bool(bool),
    Name(String),
    Member(Box<Expr>, Name),
    Slice(Box<Expr>, Box<Expr>, Box<Expr>),
    Unary(UnaryOperator, Box<Expr>),
    Binary(BinaryOperator, Box<Expr>, Box<Expr>),
    Conditional(Box<Expr>, Box<Expr>, Box<Expr>),
    Cast(Type, Box<Expr>),
    /// A call: callee, type arguments, arguments. Only `lookahead` has type arguments.
    Call(Box<Expr>, Vec<Type>, Vec<Expr>),
    List(Vec<Expr>),
    /// `value &&& mask`.
    Mask(Box<Expr>, Box<Expr>),
    /// `default` or `_`.
    Any,
}

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    None,
    In,
    Out,
    InOut,
}

/// A parameter of a block or an action.
#[derive(Clone, Debug)]
pub struct Parameter {
    pub direction: Direction,
    pub kind: Type,
    pub name: Name,
}

#[derive(Clone, Debug)]
pub struct Field {
    pub kind: Type,
    pub name: Name,
}

#[derive(Clone, Debug)]
pub struct State {
    pub name: Name,
    pub statements: Vec<Statement>,
    pub transition: Transition,
}

/// Transition of a parser state to the next one.
#[derive(Clone, Debug)]
pub enum Transition {
    To(Name),
    Select(Vec<Expr>, Vec<(Vec<Expr>, Name)>, Place),
}

#[derive(Clone, Debug)]
pub struct Action {
    pub name: Name,
    pub parameters: Vec<Parameter>,
    pub body: Vec<Statement>,
}

/// A table. Its entries are constant.
#[derive(Clone, Debug)]
pub struct Table {
    pub name: Name,
    pub keys: Vec<(Expr, Name)>,
    pub actions: Vec<Name>,
    pub default: Option<Expr>,
    pub entries: Vec<(Vec<Expr>, Expr)>,
}

/// A declaration in a parser or control, before its body.
#[derive(Clone, Debug)]
pub enum LocalDeclaration {
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
    pub locals: Vec<LocalDeclaration>,
    pub body: BlockBody,
}

#[derive(Clone, Debug)]
pub enum BlockBody {
    Parser(Vec<State>),
    Control(Vec<Statement>),
}

/// A top-level declaration.
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
