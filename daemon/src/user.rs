//! User of the operating system that a command runs as.

use patchboard_kernel::record::Principal;

/// Returns the user as the caller for records.
pub(crate) fn principal() -> Principal {
    Principal::User { name: name() }
}

/// Returns the system's name of the user of this process, independent of the environment; the user id if there is no
/// name.
fn name() -> String {
    let user = rustix::process::getuid().as_raw();
    let listed = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    named(&listed, user).unwrap_or_else(|| user.to_string())
}

/// Finds the name of a user in /etc/passwd.
fn named(listed: &str, user: u32) -> Option<String> {
    listed.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(user)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn a_user_is_found_by_number() {
        let listed = "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(named(listed, 1000).as_deref(), Some("ann"));
        assert_eq!(named(listed, 0).as_deref(), Some("root"));
        assert_eq!(named(listed, 7), None);
    }
}
