//! nftables: tables, chains and rules, each change in one transaction.

mod encode;

use net_plan::nft::{Action, Family, HookKind, Match, Rule, Table};
use rustix::io::Errno;

use crate::{
    Net, NetError,
    netlink::{ACK, DUMP, Message, Refusal},
};

/// A chain attached to a netfilter hook, of any program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseChain {
    pub table: String,
    pub name: String,
    /// Number of the netfilter hook; forward is 2.
    pub hook: u32,
    pub drops_by_default: bool,
}

/// Messages of one transaction.
#[derive(Debug, Default)]
struct Batch {
    messages: Vec<Message>,
    subjects: Vec<Subject>,
}

/// The object of a message, for errors.
#[derive(Debug, Clone)]
struct Subject {
    name: String,
    /// The kernel module that is missing when the kernel answers ENOENT.
    module: Option<&'static str>,
}

impl Batch {
    fn push(&mut self, message: Message, name: String) {
        self.push_requiring(message, name, None);
    }

    fn push_requiring(&mut self, message: Message, name: String, module: Option<&'static str>) {
        self.messages.push(message);
        self.subjects.push(Subject { name, module });
    }
}

impl Net {
    /// Replaces the whole table, which must have no other owner.
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

    /// Replaces these chains; other chains of the table stay.
    pub fn ensure_chains(&mut self, table: &Table) -> Result<(), NetError> {
        let mut batch = Batch::default();
        batch.push(encode::new_table(table), format!("table {}", title(table)));
        add_chains(&mut batch, table);
        self.commit(batch)
    }

    /// Deletes the table; a missing one is not an error.
    pub fn delete_table(&mut self, family: Family, name: &str) -> Result<(), NetError> {
        let message = encode::delete_table(family, name);
        self.delete(message, format!("table {family} {name}"))
    }

    /// Deletes the chain with its rules; a missing chain or table is not an error. No rule may jump to it.
    pub fn delete_chain(
        &mut self,
        family: Family,
        table: &str,
        name: &str,
    ) -> Result<(), NetError> {
        let message = encode::delete_chain(family, table, name);
        self.delete(message, format!("chain {name} of table {family} {table}"))
    }

    fn delete(&mut self, message: Message, name: String) -> Result<(), NetError> {
        let mut batch = Batch::default();
        batch.push(message, name);
        match self.try_commit(batch)? {
            Some((subject, refusal)) if !matches!(refusal.errno, Errno::NOENT) => {
                Err(commit_error(&subject, refusal))
            }
            _ => Ok(()),
        }
    }

    /// All base chains of the family, of any program.
    pub fn base_chains(&mut self, family: Family) -> Result<Vec<BaseChain>, NetError> {
        let message = encode::get_chains(family, DUMP);
        let replies = self
            .netfilter()?
            .request(&message)
            .map_err(|error| error.during("list packet rules"))?;
        Ok(replies
            .iter()
            .filter_map(|reply| encode::base_chain(&reply.payload))
            .collect())
    }

    fn commit(&mut self, batch: Batch) -> Result<(), NetError> {
        match self.try_commit(batch)? {
            None => Ok(()),
            Some((subject, refusal)) => Err(commit_error(&subject, refusal)),
        }
    }

    /// Returns the first refusal with its subject.
    fn try_commit(&mut self, batch: Batch) -> Result<Option<(Subject, Refusal)>, NetError> {
        let Batch { messages, subjects } = batch;
        let mut all = vec![encode::begin()];
        let last = messages.len();
        for (position, message) in messages.into_iter().enumerate() {
            let message = if position + 1 == last {
                message.with_flags(ACK)
            } else {
                message
            };
            all.push(message);
        }
        all.push(encode::end());
        let refused = self.netfilter()?.batch(all)?;
        Ok(refused.map(|(position, refusal)| {
            let subject = position
                .checked_sub(1)
                .and_then(|position| subjects.get(position));
            let whole = || Subject {
                name: "packet rules".to_owned(),
                module: None,
            };
            (subject.cloned().unwrap_or_else(whole), refusal)
        }))
    }
}

fn title(table: &Table) -> String {
    format!("{} {}", table.family, table.name)
}

/// All chains come before the rules: a rule may jump to a later chain.
fn add_chains(batch: &mut Batch, table: &Table) {
    for chain in &table.chains {
        let name = format!("chain {} of table {}", chain.name, title(table));
        let module = chain.hook.and_then(|hook| match (hook.kind, table.family) {
            (HookKind::Nat, _) => Some("nft_chain_nat"),
            (HookKind::Filter, Family::Netdev) => Some("nf_tables for interfaces"),
            (HookKind::Filter, Family::Ip | Family::Ip6) => None,
        });
        batch.push_requiring(encode::new_chain(table, chain), name.clone(), module);
        batch.push(encode::flush_chain(table, chain), name);
    }
    for chain in &table.chains {
        for rule in &chain.rules {
            let name = format!(
                "rule `{rule}` of chain {} of table {}",
                chain.name,
                title(table)
            );
            batch.push_requiring(encode::new_rule(table, chain, rule), name, module(rule));
        }
    }
}

/// The kernel module that a rule needs, besides the usual ones.
fn module(rule: &Rule) -> Option<&'static str> {
    let of_match = |one: &Match| match one {
        Match::DestinationIsLocal => Some("nft_fib_ipv4"),
        Match::OneClientOf { .. } => Some("nft_hash"),
        _ => None,
    };
    rule.matches
        .iter()
        .find_map(of_match)
        .or(match rule.action {
            Action::Masquerade => Some("nft_masq"),
            Action::DestinationNat(_) | Action::DestinationNatTo(_) | Action::SourceNat(_) => {
                Some("nft_nat")
            }
            Action::Reject => Some("nft_reject_ipv4"),
            Action::Accept | Action::Drop | Action::Return | Action::Jump(_) => None,
        })
}

fn commit_error(subject: &Subject, refusal: Refusal) -> NetError {
    let operation = format!("set {}", subject.name);
    let feature = match refusal.errno {
        Errno::OPNOTSUPP => Some("nf_tables"),
        Errno::NOENT => subject.module,
        _ => None,
    };
    match feature {
        Some(feature) => NetError::NotSupported {
            operation,
            feature: feature.to_owned(),
        },
        None => refusal.during(operation),
    }
}
