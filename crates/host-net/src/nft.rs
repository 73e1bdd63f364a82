//! Tables, chains and rules in the kernel, changed in one piece each.

mod encode;

use net_plan::nft::{Action, Family, HookKind, Table};
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

/// Messages that take effect together.
#[derive(Debug, Default)]
struct Batch {
    messages: Vec<Message>,
    subjects: Vec<Subject>,
}

/// What a message is about, for errors.
#[derive(Debug, Clone)]
struct Subject {
    name: String,
    /// What the kernel lacks when it does not find something that the message needs.
    needs: Option<&'static str>,
}

impl Batch {
    fn push(&mut self, message: Message, name: String) {
        self.push_needing(message, name, None);
    }

    fn push_needing(&mut self, message: Message, name: String, needs: Option<&'static str>) {
        self.messages.push(message);
        self.subjects.push(Subject { name, needs });
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

    /// Deletes the table with all it holds; one that is not there is fine.
    pub fn delete_table(&mut self, family: Family, name: &str) -> Result<(), NetError> {
        let mut batch = Batch::default();
        batch.push(
            encode::delete_table(family, name),
            format!("table {family} {name}"),
        );
        match self.try_commit(batch)? {
            Some((subject, refusal)) if !matches!(refusal.errno, Errno::NOENT) => {
                Err(refused(&subject, refusal))
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
            Some((subject, refusal)) => Err(refused(&subject, refusal)),
        }
    }

    /// Answers with the subject of what was refused.
    fn try_commit(&mut self, batch: Batch) -> Result<Option<(Subject, Refusal)>, NetError> {
        let Batch { messages, subjects } = batch;
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
            let subject = position
                .checked_sub(1)
                .and_then(|position| subjects.get(position));
            let whole = || Subject {
                name: "packet rules".to_owned(),
                needs: None,
            };
            (subject.cloned().unwrap_or_else(whole), refusal)
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
        let nat = chain.hook.is_some_and(|hook| hook.kind == HookKind::Nat);
        let needs = nat.then_some("nft_chain_nat");
        batch.push_needing(encode::new_chain(table, chain), name.clone(), needs);
        batch.push(encode::flush_chain(table, chain), name);
    }
    for chain in &table.chains {
        for rule in &chain.rules {
            let name = format!(
                "rule `{rule}` of chain {} of table {}",
                chain.name,
                title(table)
            );
            let needs = match rule.action {
                Action::Masquerade => Some("nft_masq"),
                Action::DestinationNat(_) | Action::DestinationNatTo(_) | Action::SourceNat(_) => {
                    Some("nft_nat")
                }
                Action::Accept | Action::Drop | Action::Return | Action::Jump(_) => None,
            };
            batch.push_needing(encode::new_rule(table, chain, rule), name, needs);
        }
    }
}

fn refused(subject: &Subject, refusal: Refusal) -> NetError {
    let doing = format!("set {}", subject.name);
    let feature = match refusal.errno {
        Errno::OPNOTSUPP => Some("nf_tables"),
        Errno::NOENT => subject.needs,
        _ => None,
    };
    match feature {
        Some(feature) => NetError::NotSupported {
            doing,
            feature: feature.to_owned(),
        },
        None => refusal.while_doing(doing),
    }
}
