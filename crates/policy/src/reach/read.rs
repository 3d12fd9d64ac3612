//! Addresses in all the ways in which systems read them.

use std::net::{IpAddr, Ipv4Addr};

/// The address that a host is, if it is none that must be looked up.
pub(super) fn address(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let bare = bare.split('%').next().unwrap_or_default().trim_end_matches('.');
    bare.parse().ok().or_else(|| old_form(bare).map(IpAddr::V4))
}

/// One to four numbers, decimal, octal or hexadecimal, of which the last fills what is left: so
/// resolvers have read addresses since there are any.
fn old_form(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u32> = text.split('.').map(number).collect::<Option<_>>()?;
    let (last, first) = parts.split_last()?;
    if first.len() > 3 || first.iter().any(|part| *part > 255) {
        return None;
    }
    let places = [24, 16, 8].into_iter();
    let high = first.iter().zip(places).fold(0, |high, (part, place)| high | part << place);
    let left = u32::MAX >> (8 * first.len());
    (*last <= left).then(|| Ipv4Addr::from_bits(high | last))
}

fn number(text: &str) -> Option<u32> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = match (hexadecimal, text.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        (None, _) => (text, 10),
    };
    // A sign is none of the digits.
    let plain = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    u32::from_str_radix(digits, radix).ok().filter(|_| plain)
}
