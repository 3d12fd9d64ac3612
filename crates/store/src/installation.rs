//! Which installation a database belongs to.

use crate::{Database, StoreError};
use serde::Serialize;
use uuid::Uuid;

/// A set of nodes that share one database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Installation {
    /// Made once, when the database was.
    pub id: Uuid,
    /// The version that made it.
    pub created_by: String,
}

impl Database {
    /// The installation of this database; the first to ask on an empty one names it.
    pub async fn installation(&self) -> Result<Installation, StoreError> {
        let (id, version) = (Uuid::now_v7().to_string(), env!("CARGO_PKG_VERSION"));
        let (id, created_by): (String, String) = match self {
            Database::Sqlite(sqlite) => {
                sqlite
                    .write(move |connection| {
                        connection.execute(
                            "INSERT INTO skep_installation (only_row, id, created_by)
                             VALUES (1, ?1, ?2) ON CONFLICT DO NOTHING",
                            (&id, version),
                        )?;
                        Ok::<_, StoreError>(connection.query_row(
                            "SELECT id, created_by FROM skep_installation",
                            [],
                            |row| Ok((row.get(0)?, row.get(1)?)),
                        )?)
                    })
                    .await?
            }
            Database::Postgres(postgres) => {
                let insert = "INSERT INTO skep_installation (only_row, id, created_by)
                              VALUES (1, $1, $2) ON CONFLICT DO NOTHING";
                let select = "SELECT id, created_by FROM skep_installation";
                let client = postgres.client().await?;
                let ask = async {
                    client.execute(insert, &[&id, &version]).await?;
                    Ok::<_, StoreError>(client.query_one(select, &[]).await?)
                };
                let row = postgres.limit(ask).await?;
                (row.get(0), row.get(1))
            }
        };
        let id = id.parse().map_err(|_| StoreError::Refused {
            store: self.name(),
            cause: format!("skep_installation.id is {id:?}, not a UUID"),
        })?;
        Ok(Installation { id, created_by })
    }
}
