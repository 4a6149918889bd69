package state

import (
	"strings"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// warner looks for what is taken but probably wasn't meant. It refuses
// nothing.
type warner struct {
	r refusals
	d *Document

	// What can be pointed at, filled when needed: the states that run, with
	// their IDs and names, and for requisites that reach into another state
	// what is written, where Salt finds no single one of names.
	runs, written map[target]struct{}
	all           []target // runs in order
	looks         int      // steps left for patterns: a hostile document has many of both
}

// target is an ID or a name under which a requisite can find a state of a
// module; the module "id" stands for any.
type target struct{ module, text string }

// warn lists in source order what looks like a secret (receipts keep the
// source, A7) and which requisites point at nothing in this document.
func warn(d *Document) []*problem.Error {
	w := warner{d: d, looks: 200_000}
	for i := range d.ids {
		id := &d.ids[i]
		for j := range id.calls {
			f := &id.calls[j]
			for k := range f.args {
				a := &f.args[k]
				w.secret(a.key, &a.val, a.pos)
				if _, ok := requisites[a.key]; ok {
					w.requisite(a.key, &a.val)
				}
				if a.key == "names" {
					w.names(&a.val)
				}
			}
		}
	}
	return w.r.list
}

// names looks at the requisites among the arguments of single names.
func (w *warner) names(list *value) {
	for i := range list.items {
		e := &list.items[i]
		if e.kind != kindMap {
			continue
		}
		for j := range e.val(0).items {
			a := &e.val(0).items[j]
			if _, ok := requisites[a.key(0).text]; ok {
				w.requisite(a.key(0).text, a.val(0))
			}
		}
	}
}

func (w *warner) requisite(key string, v *value) {
	if v.kind == kindMap {
		for i := range v.pairs() {
			w.reference(key, v.key(i).text, v.val(i))
		}
		return
	}
	for i := range v.items {
		if e := &v.items[i]; e.kind == kindText {
			w.reference(key, "id", e)
		} else {
			w.reference(key, e.key(0).text, e.val(0))
		}
	}
}

// reference warns of a requisite without a target. Most requisites take shell
// patterns; those that reach into another state don't, or not on all versions.
func (w *warner) reference(key, module string, to *value) {
	w.index()
	outward := requisites[key].outward
	patterns := !outward && key != "listen" && key != "listen_in"
	targets := w.runs
	if outward {
		targets = w.written
	}
	// A text with a bracket is a pattern that may not match itself.
	if _, ok := targets[target{module, to.text}]; ok && (!patterns || !strings.Contains(to.text, "[")) {
		return
	}
	if patterns && strings.ContainsAny(to.text, "*?[") {
		for i := range w.all {
			c := &w.all[i]
			if c.module != module {
				continue
			}
			if w.looks -= 1 + len(to.text)*len(c.text)/4; w.looks < 0 {
				return // rather no warning than a wrong one
			}
			if match(to.text, c.text) {
				return
			}
		}
	}
	w.r.add(to.pos, problem.DanglingRequisite, "point at an ID or a name in this document: the run would fail, or Salt would ignore it without a word",
		"this %s points at no state in this document", key)
}

func (w *warner) index() {
	if w.runs != nil {
		return
	}
	w.runs, w.written = make(map[target]struct{}), make(map[target]struct{})
	for i := range w.d.ids {
		id := &w.d.ids[i]
		for j := range id.calls {
			f := &id.calls[j]
			w.target(f.module, id.id)
			for _, text := range [...]string{id.id, f.name} {
				w.written[target{f.module, text}] = struct{}{}
				w.written[target{"id", text}] = struct{}{}
			}
			if len(f.names) == 0 {
				w.target(f.module, f.name)
			}
			for _, name := range f.names {
				w.target(f.module, name)
			}
		}
	}
}

func (w *warner) target(module, text string) {
	for _, t := range [...]target{{module, text}, {"id", text}} {
		if _, ok := w.runs[t]; !ok {
			w.runs[t] = struct{}{}
			w.all = append(w.all, t)
		}
	}
}

// match is Python's fnmatch: *, ?, [set] and [!set] over all of name. It needs
// no more steps than the product of both lengths.
func match(pattern, name string) bool {
	p, n := []rune(pattern), []rune(name)
	back, from := -1, 0
	i, j := 0, 0
	for j < len(n) {
		if i < len(p) {
			if p[i] == '*' {
				back, from = i, j
				i++
				continue
			}
			if ok, size := matchOne(p[i:], n[j]); ok {
				i += size
				j++
				continue
			}
		}
		if back < 0 {
			return false
		}
		from++
		i, j = back+1, from
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

// matchOne matches one character against the head of a pattern, and gives the
// size of that head.
func matchOne(p []rune, c rune) (ok bool, size int) {
	switch p[0] {
	case '?':
		return true, 1
	case '[':
		end := 1
		if end < len(p) && p[end] == '!' {
			end++
		}
		if end < len(p) && p[end] == ']' {
			end++
		}
		for end < len(p) && p[end] != ']' {
			end++
		}
		if end == len(p) {
			return c == '[', 1 // no set, a bracket
		}
		set := p[1:end]
		negated := len(set) > 0 && set[0] == '!'
		if negated {
			set = set[1:]
		}
		in := false
		for k := 0; k < len(set); k++ {
			if k+2 < len(set) && set[k+1] == '-' {
				in = in || set[k] <= c && c <= set[k+2]
				k += 2
				continue
			}
			in = in || set[k] == c
		}
		return in != negated, end + 1
	default:
		return p[0] == c, 1
	}
}

const secretHint = "keep it on the client or in pillar: definitions, snapshots and receipts keep the source"

// secret looks at a value and all below it, under the name that it has.
func (w *warner) secret(key string, v *value, at position) {
	switch v.kind {
	case kindText:
		switch {
		case looksSecret(v.text):
			w.r.add(v.pos, problem.LooksSecret, secretHint, "this text looks like a key or a token")
		case secretName(key) && literal(v.text):
			w.r.add(v.pos, problem.LooksSecret, secretHint, "this looks like a password, a token or a key that is written out")
		}
	case kindInt:
		if secretName(key) && v.num > 99 {
			w.r.add(v.at(at), problem.LooksSecret, secretHint, "this looks like a password that is written out")
		}
	case kindList:
		for i := range v.items {
			w.secret(key, &v.items[i], at)
		}
	case kindMap:
		for i := range v.pairs() {
			k := v.key(i)
			name := ""
			if k.kind == kindText {
				name = k.text
			}
			w.secret(name, v.val(i), k.pos)
		}
	case kindNull, kindBool, kindFloat:
	}
}

// secretWords are the last words of names whose values are secret.
var secretWords = []string{
	"password", "passwd", "passphrase", "secret", "token", "apikey", "api_key", "access_key", "secret_key", "private_key",
	"auth_key", "pin", "credential", "credentials",
}

// secretName judges the name of a value: password, db_password, DB-PASSWORD,
// authToken.
func secretName(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	n := strings.ToLower(strings.ReplaceAll(name, "-", "_"))
	for _, w := range secretWords {
		rest, ok := strings.CutSuffix(n, w)
		if !ok {
			continue
		}
		if rest == "" || rest[len(rest)-1] == '_' || rest[len(rest)-1] == '.' {
			return true
		}
		// authToken, dbPassword
		if c := name[len(rest)]; c >= 'A' && c <= 'Z' && len(w) > 3 {
			return true
		}
		if w == "password" || w == "passwd" {
			return true // rootpassword
		}
	}
	return false
}

// literal says whether a text under a secret's name is the secret, and not a
// path, a reference, a password hash or a switch.
func literal(s string) bool {
	t := strings.TrimSpace(s)
	switch {
	case len(t) < 4, strings.HasPrefix(t, "/"), strings.HasPrefix(t, "$"), strings.HasPrefix(t, "__slot__:"),
		strings.HasPrefix(t, "salt://"), strings.HasPrefix(t, "sdb://"), strings.HasPrefix(t, "file:"), t == "!", t == "*":
		return false
	}
	return true
}

// tokenShape is a well-known shape of a token: a prefix and how many letters,
// digits, "_", "-" and "." have to follow it at least.
type tokenShape struct {
	prefix string
	least  int
}

var tokenShapes = []tokenShape{
	{"AKIA", 16}, {"ASIA", 16}, {"ghp_", 30}, {"gho_", 30}, {"ghu_", 30}, {"ghs_", 30}, {"ghr_", 30}, {"github_pat_", 30},
	{"glpat-", 18}, {"xoxb-", 20}, {"xoxp-", 20}, {"xoxa-", 20}, {"xoxs-", 20}, {"sk_live_", 16}, {"rk_live_", 16},
	{"AIza", 30}, {"ya29.", 20}, {"SG.", 40}, {"npm_", 30}, {"pypi-", 30}, {"dop_v1_", 40}, {"hvs.", 20}, {"AGE-SECRET-KEY-1", 30}, {"eyJ", 60},
}

// looksSecret looks for key blocks and tokens anywhere in a text.
func looksSecret(s string) bool {
	if len(s) < 20 {
		return false
	}
	if i := strings.Index(s, "-----BEGIN "); i >= 0 {
		head, _, _ := strings.Cut(s[i+len("-----BEGIN "):], "-----")
		if strings.Contains(head, "PRIVATE KEY") {
			return true
		}
	}
	for _, shape := range tokenShapes {
		for from := 0; ; {
			i := strings.Index(s[from:], shape.prefix)
			if i < 0 {
				break
			}
			i += from
			from = i + len(shape.prefix)
			if i > 0 && isTokenByte(s[i-1]) {
				continue
			}
			n := 0
			for from+n < len(s) && isTokenByte(s[from+n]) {
				n++
			}
			if n >= shape.least {
				return true
			}
		}
	}
	return urlPassword(s)
}

func isTokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'
}

// urlPassword looks for scheme://user:password@host.
func urlPassword(s string) bool {
	for {
		i := strings.Index(s, "://")
		if i < 0 {
			return false
		}
		s = s[i+3:]
		end := strings.IndexAny(s, "/ \t\n\"'?#")
		if end < 0 {
			end = len(s)
		}
		user, _, found := strings.Cut(s[:end], "@")
		if !found {
			continue
		}
		if _, password, ok := strings.Cut(user, ":"); ok && literal(password) && !strings.HasPrefix(password, "{") {
			return true
		}
	}
}
