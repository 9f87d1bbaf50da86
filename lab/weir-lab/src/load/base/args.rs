//! The settings of a program, as `key=value` words of its command line.

/// Gives each word's key and value to `set`, which says whether there is such a setting. `keys` names all of them, for
/// the error.
pub fn read_words(
    words: impl Iterator<Item = String>,
    keys: &str,
    mut set: impl FnMut(&str, &str) -> Result<bool, String>,
) -> Result<(), String> {
    for word in words {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("'{word}' is not of the form key=value"))?;
        if !set(key, value)? {
            return Err(format!("'{word}' is no setting: {keys}"));
        }
    }
    Ok(())
}

/// As [`read_words`], if all values are whole numbers.
pub fn read_numbers(
    words: impl Iterator<Item = String>,
    keys: &str,
    mut set: impl FnMut(&str, u64) -> bool,
) -> Result<(), String> {
    read_words(words, keys, |key, value| Ok(set(key, number(value)?)))
}

/// A whole number.
pub fn number(value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("'{value}' is not a whole number"))
}
