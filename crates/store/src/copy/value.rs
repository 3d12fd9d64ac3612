//! A value on its way from one database to the other, and the checksum of many.

use super::CopyError;
use bytes::{BufMut, BytesMut};
use rusqlite::types::Value;
use sha2::{Digest, Sha256};
use std::error::Error;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// Milliseconds from 1970 to 2000, where PostgreSQL begins to count.
const EPOCH_2000_MS: i64 = 946_684_800_000;

/// The type of a column in PostgreSQL, as far as there are any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Int8,
    Int4,
    Int2,
    Bool,
    Float8,
    Text,
    Bytes,
    Uuid,
    Time,
}

impl Kind {
    pub(super) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "int8" => Kind::Int8,
            "int4" => Kind::Int4,
            "int2" => Kind::Int2,
            "bool" => Kind::Bool,
            "float8" => Kind::Float8,
            "text" => Kind::Text,
            "bytea" => Kind::Bytes,
            "uuid" => Kind::Uuid,
            "timestamptz" => Kind::Time,
            _ => return None,
        })
    }

    pub(super) fn wire(self) -> Type {
        match self {
            Kind::Int8 => Type::INT8,
            Kind::Int4 => Type::INT4,
            Kind::Int2 => Type::INT2,
            Kind::Bool => Type::BOOL,
            Kind::Float8 => Type::FLOAT8,
            Kind::Text => Type::TEXT,
            Kind::Bytes => Type::BYTEA,
            Kind::Uuid => Type::UUID,
            Kind::Time => Type::TIMESTAMPTZ,
        }
    }

    /// How SQLite is asked for such a column.
    pub(super) fn asked_of_sqlite(self, column: &str) -> String {
        match self {
            // A text there, with milliseconds.
            Kind::Time => format!("CAST(round(unixepoch({column}, 'subsec') * 1000) AS INTEGER)"),
            _ => column.to_owned(),
        }
    }

    /// How PostgreSQL is asked for it, so that the answer is what SQLite has.
    pub(super) fn asked_of_postgres(self, column: &str) -> String {
        match self {
            Kind::Int8 | Kind::Float8 | Kind::Text | Kind::Bytes => column.to_owned(),
            Kind::Int4 | Kind::Int2 => format!("{column}::bigint"),
            Kind::Bool => format!("{column}::int::bigint"),
            Kind::Uuid => format!("uuid_send({column})"),
            Kind::Time => format!("round(extract(epoch FROM {column}) * 1000)::bigint"),
        }
    }

    /// Reads an answer to that.
    pub(super) fn read(self, row: &tokio_postgres::Row, at: usize) -> Value {
        fn or_null<T>(value: Option<T>, of: impl FnOnce(T) -> Value) -> Value {
            value.map_or(Value::Null, of)
        }
        match self {
            Kind::Int8 | Kind::Int4 | Kind::Int2 | Kind::Bool | Kind::Time => {
                or_null(row.get(at), Value::Integer)
            }
            Kind::Float8 => or_null(row.get(at), Value::Real),
            Kind::Text => or_null(row.get(at), Value::Text),
            Kind::Bytes | Kind::Uuid => or_null(row.get(at), Value::Blob),
        }
    }
}

/// A value as PostgreSQL wants it.
#[derive(Debug)]
pub(super) struct Sent<'value>(pub(super) &'value Value);

impl ToSql for Sent<'_> {
    fn to_sql(
        &self,
        wanted: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match (self.0, wanted) {
            (Value::Null, _) => return Ok(IsNull::Yes),
            (Value::Integer(number), &Type::INT8) => out.put_i64(*number),
            (Value::Integer(number), &Type::INT4) => out.put_i32(i32::try_from(*number)?),
            (Value::Integer(number), &Type::INT2) => out.put_i16(i16::try_from(*number)?),
            (Value::Integer(0), &Type::BOOL) => out.put_u8(0),
            (Value::Integer(1), &Type::BOOL) => out.put_u8(1),
            (Value::Integer(ms), &Type::TIMESTAMPTZ) => {
                let micros = ms.checked_sub(EPOCH_2000_MS).and_then(|ms| ms.checked_mul(1_000));
                out.put_i64(micros.ok_or("a time that is none")?);
            }
            (Value::Real(number), &Type::FLOAT8) => out.put_f64(*number),
            (Value::Text(text), &Type::TEXT) => out.put_slice(text.as_bytes()),
            (Value::Blob(bytes), &Type::BYTEA) => out.put_slice(bytes),
            (Value::Blob(bytes), &Type::UUID) if bytes.len() == 16 => out.put_slice(bytes),
            (value, wanted) => {
                return Err(format!("{:?} cannot be a {wanted}", value.data_type()).into());
            }
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// How many rows, and which, in whatever order they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) rows: u64,
    /// Of each row a hash, added up: no order is the same on both sides.
    hash: u128,
}

impl Sum {
    pub(super) fn add(&mut self, row: &[Value]) {
        let mut digest = Sha256::new();
        for value in row {
            // Each with its kind and its length, so that no two rows are written alike.
            match value {
                Value::Null => digest.update([0]),
                Value::Integer(number) => {
                    digest.update([1]);
                    digest.update(number.to_be_bytes());
                }
                Value::Real(number) => {
                    digest.update([2]);
                    digest.update(number.to_bits().to_be_bytes());
                }
                Value::Text(text) => {
                    digest.update([3]);
                    digest.update((text.len() as u64).to_be_bytes());
                    digest.update(text.as_bytes());
                }
                Value::Blob(bytes) => {
                    digest.update([4]);
                    digest.update((bytes.len() as u64).to_be_bytes());
                    digest.update(bytes);
                }
            }
        }
        let mut half = [0; 16];
        half.copy_from_slice(&digest.finalize()[..16]);
        self.hash = self.hash.wrapping_add(u128::from_be_bytes(half));
        self.rows += 1;
    }

    pub(super) fn shown(&self) -> String {
        format!("{:032x}", self.hash)
    }
}

/// PostgreSQL keeps no character U+0000 in a text. Tells whether one was replaced.
pub(super) fn mend(value: &mut Value) -> bool {
    match value {
        Value::Text(text) if text.contains('\0') => {
            *text = text.replace('\0', "\u{fffd}");
            true
        }
        _ => false,
    }
}

/// About how much memory a row takes.
pub(super) fn size(row: &[Value]) -> usize {
    let of = |value: &Value| match value {
        Value::Text(text) => text.len(),
        Value::Blob(bytes) => bytes.len(),
        _ => 0,
    };
    row.iter().map(|value| size_of::<Value>() + of(value)).sum()
}

/// A column whose type has no counterpart.
pub(super) fn unknown(table: &str, column: &str) -> CopyError {
    CopyError::Unknown { what: format!("{table}.{column}") }
}
