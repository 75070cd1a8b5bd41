//! Separation of code from comments and literals, without parsing Rust.

/// Rust source in two versions, each with only one kind of text. Everything else is blank. Lines
/// and columns do not move.
#[derive(Debug)]
pub(crate) struct Masked {
    pub(crate) code: String,
    pub(crate) comments: String,
}

impl Masked {
    pub(crate) fn new(source: &str) -> Self {
        let mut scanner = Scanner {
            chars: source.chars().collect(),
            at: 0,
            masked: Self { code: String::new(), comments: String::new() },
        };
        scanner.run();
        scanner.masked
    }
}

struct Scanner {
    chars: Vec<char>,
    at: usize,
    masked: Masked,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

impl Scanner {
    fn run(&mut self) {
        while let Some(char) = self.peek(0) {
            match (char, self.peek(1)) {
                ('/', Some('/')) => self.line_comment(),
                ('/', Some('*')) => self.block_comment(),
                ('"', _) => self.string(),
                ('\'', _) => self.quote(),
                _ if is_word(char) => self.word(),
                _ => self.take(1, Kind::Code),
            }
        }
    }

    fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|char| char != '\n') {
            self.take(1, Kind::Comment);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while self.peek(0).is_some() {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => depth += 1,
                (Some('*'), Some('/')) => depth -= 1,
                _ => {
                    self.take(1, Kind::Comment);
                    continue;
                }
            }
            self.take(2, Kind::Comment);
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.take(1, Kind::Literal);
        while let Some(char) = self.peek(0) {
            self.take(if char == '\\' { 2 } else { 1 }, Kind::Literal);
            if char == '"' {
                return;
            }
        }
    }

    fn raw_string(&mut self, hashes: usize) {
        self.take(hashes + 1, Kind::Literal);
        while let Some(char) = self.peek(0) {
            let closes = char == '"' && (1..=hashes).all(|ahead| self.peek(ahead) == Some('#'));
            self.take(if closes { hashes + 1 } else { 1 }, Kind::Literal);
            if closes {
                return;
            }
        }
    }

    fn quote(&mut self) {
        match (self.peek(1), self.peek(2)) {
            (Some('\\'), _) => {
                self.take(3, Kind::Literal);
                while self.peek(0).is_some_and(|char| char != '\'') {
                    self.take(1, Kind::Literal);
                }
                self.take(1, Kind::Literal);
            }
            (Some(_), Some('\'')) => self.take(3, Kind::Literal),
            _ => self.take(1, Kind::Code),
        }
    }

    /// Takes a word, which can be the prefix of a literal. Numbers are words too.
    fn word(&mut self) {
        let length = (0..).take_while(|ahead| self.peek(*ahead).is_some_and(is_word)).count();
        let word: String = self.chars[self.at..self.at + length].iter().collect();
        self.take(length, Kind::Code);
        let hashes = (0..).take_while(|ahead| self.peek(*ahead) == Some('#')).count();
        match (word.as_str(), self.peek(hashes)) {
            ("r" | "br" | "cr", Some('"')) => self.raw_string(hashes),
            ("b" | "c", Some('"')) if hashes == 0 => self.string(),
            ("b", Some('\'')) if hashes == 0 => self.quote(),
            _ => {}
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn take(&mut self, count: usize, kind: Kind) {
        let end = (self.at + count).min(self.chars.len());
        for char in &self.chars[self.at..end] {
            let blank = if *char == '\n' { '\n' } else { ' ' };
            self.masked.code.push(if kind == Kind::Code { *char } else { blank });
            self.masked.comments.push(if kind == Kind::Comment { *char } else { blank });
        }
        self.at = end;
    }
}

pub(crate) fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> String {
        Masked::new(source).code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_are_not_code() {
        assert_eq!(code("a // { \" '\nb"), "a b");
        assert_eq!(code("a /* { /* nested */ \" */ b"), "a b");
        assert_eq!(code("/// fn in_a_doc() {\nfn real() {}"), "fn real() {}");
        assert_eq!(code("a / b * c"), "a / b * c");
    }

    #[test]
    fn strings_are_not_code_whatever_they_hold() {
        assert_eq!(code(r#"f("{ // \" } \\") + g"#), "f( ) + g");
        assert_eq!(code("f(\"line\n { fn x() {\n\") g"), "f( ) g");
        assert_eq!(code(r###"f(r#" { "# , r"\", br##"x"#{"##) g"###), "f(r , r , br ) g");
        assert_eq!(code(r#"b"{" c"{" b'{' "#), "b c b");
        assert_eq!(code("r#fn r#type"), "r#fn r#type");
        assert_eq!(code(r#"for_r"{" "#), "for_r");
    }

    #[test]
    fn character_literals_are_told_from_lifetimes() {
        assert_eq!(code(r"['{', '\'', '\\', '\u{7b}', '§', b'\n', '}']"), "[ , , , , , b , ]");
        assert_eq!(
            code("fn f<'a>(x: &'a str) -> &'static T {"),
            "fn f<'a>(x: &'a str) -> &'static T {"
        );
        assert_eq!(code("'outer: loop { break 'outer; }"), "'outer: loop { break 'outer; }");
        assert_eq!(code("x::<'a,'b>('c')"), "x::<'a,'b>( )");
        assert_eq!(code("'\"' + '\"' {"), "+ {");
    }

    #[test]
    fn lines_and_columns_stay_where_they_are() {
        let source = "let a = \"one\ntwo\"; // three §\n/* four\n*/ b\n";
        let masked = Masked::new(source);
        for masked in [&masked.code, &masked.comments] {
            let widths = |text: &str| text.lines().map(|line| line.chars().count()).collect();
            let (before, after): (Vec<_>, Vec<_>) = (widths(source), widths(masked));
            assert_eq!(before, after);
        }
        assert_eq!(masked.comments.trim(), "// three §\n/* four\n*/".trim());
    }

    #[test]
    fn unfinished_literals_end_with_the_file() {
        for source in ["\"abc", "r##\"abc\"#", "/* /* */", "'\\", "'", "\"\\"] {
            assert_eq!(Masked::new(source).code.len(), source.len(), "{source}");
        }
    }
}
