//! Reads the words of one command of a script. Plays nothing.

use std::collections::BTreeMap;

use super::wrong;
use crate::Failure;

pub(super) fn whole(what: &str, text: &str) -> Result<u64, Failure> {
    text.parse()
        .map_err(|_| wrong(format!("{what}: {text} is not a whole number.")))
}

/// `name value` pairs of a command.
pub(super) struct CommandOptions<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> CommandOptions<'a> {
    pub(super) fn read(words: &[&'a str]) -> Result<Self, Failure> {
        let mut options = BTreeMap::new();
        for pair in words.chunks(2) {
            let [name, value] = pair else {
                return Err(wrong(format!("{} needs a value.", pair[0])));
            };
            options.insert(*name, *value);
        }
        Ok(Self(options))
    }

    pub(super) fn take(&mut self, name: &str) -> Option<&'a str> {
        self.0.remove(name)
    }

    pub(super) fn whole(&mut self, name: &str) -> Result<Option<u64>, Failure> {
        self.take(name).map(|text| whole(name, text)).transpose()
    }

    pub(super) fn needed(&mut self, command: &str, name: &str) -> Result<&'a str, Failure> {
        self.take(name)
            .ok_or_else(|| wrong(format!("{command} needs {name}.")))
    }

    pub(super) fn all_used(&self, command: &str) -> Result<(), Failure> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(wrong(format!("{command} knows no {name}."))),
        }
    }
}
