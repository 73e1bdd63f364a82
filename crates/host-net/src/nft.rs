//! Tables, chains and rules in the kernel, changed in one piece each.

mod encode;

use net_plan::nft::{Family, Table};
use rustix::io::Errno;

use crate::{
    Net, NetError,
    netlink::{ACK, DUMP, Message, Refusal},
};

/// A chain that hangs on a hook, of whoever made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseChain {
    pub table: String,
    pub name: String,
    /// Number of the netfilter hook; forward is 2.
    pub hook: u32,
    pub drops_by_default: bool,
}

/// Messages that take effect together, each with what to call it in an error.
#[derive(Debug, Default)]
struct Batch {
    messages: Vec<Message>,
    names: Vec<String>,
}

impl Batch {
    fn push(&mut self, message: Message, name: String) {
        self.messages.push(message);
        self.names.push(name);
    }
}

impl Net {
    /// Makes the kernel's table be this one, whatever it held before: the table must be ours alone.
    pub fn replace_table(&mut self, table: &Table) -> Result<(), NetError> {
        let mut batch = Batch::default();
        batch.push(encode::new_table(table), format!("table {}", title(table)));
        batch.push(
            encode::delete_table(table.family, &table.name),
            title(table),
        );
        batch.push(encode::new_table(table), format!("table {}", title(table)));
        add_chains(&mut batch, table);
        self.commit(batch)
    }

    /// Makes the chains be these and leaves chains of others in the table alone.
    pub fn ensure_chains(&mut self, table: &Table) -> Result<(), NetError> {
        let mut batch = Batch::default();
        batch.push(encode::new_table(table), format!("table {}", title(table)));
        add_chains(&mut batch, table);
        self.commit(batch)
    }

    /// Takes the chains away, and the table unless others have chains in it.
    pub fn remove_chains(&mut self, table: &Table) -> Result<(), NetError> {
        let mut batch = Batch::default();
        // Made first, so that nothing is missing when it is deleted.
        batch.push(encode::new_table(table), format!("table {}", title(table)));
        for chain in &table.chains {
            batch.push(
                encode::new_chain(table, chain),
                format!("chain {}", chain.name),
            );
            batch.push(
                encode::flush_chain(table, chain),
                format!("chain {}", chain.name),
            );
        }
        for chain in &table.chains {
            batch.push(
                encode::delete_chain(table, chain),
                format!("chain {}", chain.name),
            );
        }
        self.commit(batch)?;
        let mut batch = Batch::default();
        batch.push(
            encode::delete_empty_table(table),
            format!("table {}", title(table)),
        );
        match self.try_commit(batch)? {
            Some((name, refusal)) if !matches!(refusal.errno, Errno::BUSY | Errno::NOENT) => {
                Err(refused(&name, refusal))
            }
            _ => Ok(()),
        }
    }

    /// Deletes the table with all it holds; one that is not there is fine.
    pub fn delete_table(&mut self, family: Family, name: &str) -> Result<(), NetError> {
        let mut batch = Batch::default();
        batch.push(
            encode::delete_table(family, name),
            format!("table {family} {name}"),
        );
        match self.try_commit(batch)? {
            Some((name, refusal)) if !matches!(refusal.errno, Errno::NOENT) => {
                Err(refused(&name, refusal))
            }
            _ => Ok(()),
        }
    }

    /// All base chains of the family, of whoever made them.
    pub fn base_chains(&mut self, family: Family) -> Result<Vec<BaseChain>, NetError> {
        let message = encode::get_chains(family, DUMP);
        let replies = self
            .netfilter()?
            .request(&message)
            .map_err(|err| err.while_doing("list packet rules"))?;
        Ok(replies
            .iter()
            .filter_map(|reply| encode::base_chain(&reply.payload))
            .collect())
    }

    fn commit(&mut self, batch: Batch) -> Result<(), NetError> {
        match self.try_commit(batch)? {
            None => Ok(()),
            Some((name, refusal)) => Err(refused(&name, refusal)),
        }
    }

    /// Answers with the name of what was refused.
    fn try_commit(&mut self, batch: Batch) -> Result<Option<(String, Refusal)>, NetError> {
        let Batch { messages, names } = batch;
        let mut all = vec![encode::begin()];
        let last = messages.len();
        for (position, message) in messages.into_iter().enumerate() {
            let message = if position + 1 == last {
                message.asking(ACK)
            } else {
                message
            };
            all.push(message);
        }
        all.push(encode::end());
        let refused = self.netfilter()?.batch(all)?;
        Ok(refused.map(|(position, refusal)| {
            let name = position
                .checked_sub(1)
                .and_then(|position| names.get(position));
            (
                name.cloned().unwrap_or_else(|| "packet rules".to_owned()),
                refusal,
            )
        }))
    }
}

fn title(table: &Table) -> String {
    format!("{} {}", table.family, table.name)
}

/// Chains first: rules jump to chains that come later.
fn add_chains(batch: &mut Batch, table: &Table) {
    for chain in &table.chains {
        let name = format!("chain {} of table {}", chain.name, title(table));
        batch.push(encode::new_chain(table, chain), name.clone());
        batch.push(encode::flush_chain(table, chain), name);
    }
    for chain in &table.chains {
        for rule in &chain.rules {
            let name = format!(
                "rule `{rule}` of chain {} of table {}",
                chain.name,
                title(table)
            );
            batch.push(encode::new_rule(table, chain, rule), name);
        }
    }
}

fn refused(name: &str, refusal: Refusal) -> NetError {
    let doing = format!("set {name}");
    if refusal.errno == Errno::OPNOTSUPP {
        return NetError::NotSupported {
            doing,
            feature: "nf_tables with NAT".to_owned(),
        };
    }
    refusal.while_doing(doing)
}
