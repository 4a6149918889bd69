package state

import (
	"strings"
	"unicode/utf8"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// Document is a source that was accepted. It doesn't change any more.
type Document struct {
	ids       []declaration
	declared  int
	canonical []byte
	digest    string
	warnings  []*problem.Error
}

// declaration is one state ID with its functions.
type declaration struct {
	id    string
	pos   position
	calls []call
}

// call is one function of a state ID: `pkg.installed: [...]`.
type call struct {
	module, function string
	pos              position
	args             []argument
	name             string   // what Salt calls the state: `name`, or the ID
	names            []string // `names`, each once, in order
	ordered          bool     // the author gave an `order`
}

// argument is one `- key: value`.
type argument struct {
	key string
	val value
	pos position
}

// separator stands between the parts of a result key.
const separator = "_|-"

// Parse reads a source. Without errors it is accepted; otherwise the document
// is nil and the errors are in source order, at most MaxErrors of them, each
// with line, column and a hint.
func Parse(source []byte) (*Document, []*problem.Error) {
	var r refusals
	t := readSource(source, &r)
	if t == nil {
		return nil, r.list
	}
	shape := checkShape(t, &r)
	if shape == nil {
		return nil, r.list
	}
	tree := parseYAML(t, shape, &r)
	if tree == nil {
		return nil, r.list
	}
	root, ok := resolve(tree, &r)
	if !ok {
		return nil, r.list
	}
	d := check(&root, &r)
	if !r.empty() {
		return nil, r.list
	}
	if err := d.seal(); err != nil {
		return nil, []*problem.Error{err}
	}
	d.warnings = warn(d)
	return d, nil
}

// Warnings lists what looks like a mistake and is taken all the same, in
// source order: text that looks like a secret, requisites that point at
// nothing in this document. A decoded document has none.
func (d *Document) Warnings() []*problem.Error { return d.warnings }

// Declared is the number of results that a run has to bring: one for each
// function, or for each of its `names`.
func (d *Document) Declared() int { return d.declared }

// checker builds the Document from resolved values.
type checker struct {
	r *refusals
	d *Document
}

// check applies the rules of the language to the resolved document.
func check(root *value, r *refusals) *Document {
	c := checker{r: r, d: &Document{}}
	if root.kind != kindMap {
		r.add(root.pos, problem.BadBody, "write the state ID, a colon, and the function in the next line, indented",
			"the document has to be a mapping of state IDs, and is %s", root.typeName())
		return c.d
	}
	if root.pairs() == 0 {
		r.add(root.pos, problem.SourceEmpty, "declare a state", "the source declares no state")
		return c.d
	}
	c.d.ids = make([]declaration, 0, min(root.pairs(), MaxIDs))
	for i := range root.pairs() {
		k := root.key(i)
		if i == MaxIDs {
			r.add(k.pos, problem.TooManyIDs, "split it into several definitions", "the document has more than %d state IDs", MaxIDs)
			break
		}
		if !c.id(k) {
			continue
		}
		calls := c.body(k, root.val(i))
		c.d.ids = append(c.d.ids, declaration{id: k.text, pos: k.pos, calls: calls})
	}
	for i := range c.d.ids {
		for j := range c.d.ids[i].calls {
			c.d.declared += max(1, len(c.d.ids[i].calls[j].names))
		}
	}
	return c.d
}

// id checks one state ID. It is false if what stands below it means nothing.
func (c *checker) id(k *value) bool {
	const again = "give the state another ID"
	switch {
	case k.kind != kindText:
		if k.kind < kindText {
			c.r.add(k.pos, problem.BadID, "put it in quotes", "a state ID has to be text, and this is %s", k.typeName())
		}
		return true
	case k.text == "include" || k.text == "exclude" || k.text == "extend":
		c.r.add(k.pos, problem.ReservedID, "write all states into this document", "%s isn't taken: a source stands alone", k.text)
		return false
	case strings.HasPrefix(k.text, "__"):
		c.r.add(k.pos, problem.ReservedID, again, "a state ID can't begin with two underscores: Salt drops it without a word")
	case k.text == "":
		c.r.add(k.pos, problem.BadID, again, "a state ID can't be empty")
	case strings.Contains(k.text, separator):
		c.r.add(k.pos, problem.BadID, again, "a state ID can't contain %s, which separates the parts of Salt's result keys", separator)
	case strings.ContainsAny(k.text, "\n\r\t"):
		c.r.add(k.pos, problem.BadID, again, "a state ID has to be one line, without tabs")
	case len(k.text) > MaxIDLength && utf8.RuneCountInString(k.text) > MaxIDLength:
		c.r.add(k.pos, problem.BadID, again, "a state ID can't be longer than %d characters", MaxIDLength)
	}
	return true
}

// body checks what stands below a state ID.
func (c *checker) body(id, body *value) []call {
	const form = "write `module.function:` below the ID, and its arguments below that, or `module.function: []` without any"
	if body.kind != kindMap {
		at := body.pos
		if body.kind == kindNull {
			at = id.pos
		}
		c.r.add(at, problem.BadBody, form, "below a state ID there has to be a function, and this is %s", body.typeName())
		return nil
	}
	if body.pairs() == 0 {
		c.r.add(body.pos, problem.BadBody, form, "there is no function below this state ID")
		return nil
	}
	calls := make([]call, 0, body.pairs())
	functions := make(map[string]string, body.pairs()) // by module
	for i := range body.pairs() {
		k := body.key(i)
		module, function, ok := c.function(k)
		if ok {
			if first, found := functions[module]; !found {
				functions[module] = function
			} else if first != function {
				c.r.add(k.pos, problem.SeveralFunctions, "put it under a state ID of its own, with a `name` argument if it needs one",
					"two functions of one module can't stand under one state ID")
			}
		}
		f := call{module: module, function: function, pos: k.pos, name: id.text}
		c.arguments(&f, k, body.val(i))
		calls = append(calls, f)
	}
	return calls
}

// function checks a `module.function` key.
func (c *checker) function(k *value) (module, function string, ok bool) {
	const form = "write the full name, for example `pkg.installed`"
	if k.kind != kindText {
		if k.kind < kindText {
			c.r.add(k.pos, problem.BadFunction, form, "a function has to be text, and this is %s", k.typeName())
		}
		return "", "", false
	}
	module, function, dotted := strings.Cut(k.text, ".")
	switch {
	case !dotted:
		c.r.add(k.pos, problem.BadFunction, form, "a function has to be written with its module and a dot")
	case strings.Contains(function, "."):
		c.r.add(k.pos, problem.BadFunction, form, "a function has one dot: Salt drops what follows a second one")
	case !isWord(module) || !isWord(function):
		c.r.add(k.pos, problem.BadFunction, form,
			"module and function are letters, digits and underscores, and don't begin with an underscore")
	default:
		return module, function, true
	}
	return "", "", false
}

// isWord accepts what can be the name of a state module or function.
func isWord(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case i > 0 && (c >= '0' && c <= '9' || c == '_'):
		case c >= '0' && c <= '9':
		default:
			return false
		}
	}
	return s != ""
}

// arguments checks the list below a function and fills f.
func (c *checker) arguments(f *call, key, list *value) {
	const form = "write each argument as `- name: value`, or `[]` if there are none"
	if list.kind != kindList {
		at := list.pos
		if list.kind == kindNull {
			at = key.pos
		}
		c.r.add(at, problem.BadArgument, form, "the arguments of a function have to be a list, and this is %s", list.typeName())
		return
	}
	if len(list.items) > 0 {
		f.args = make([]argument, 0, len(list.items))
	}
	seen := seenFor(list)
	for i := range list.items {
		a, ok := c.argument(&list.items[i])
		if !ok || c.twice(&a, f.args, seen) {
			continue
		}
		c.special(f, &a)
		f.args = append(f.args, a)
	}
}

// seenFor gives a set for the names of the arguments of a list, or nil if the
// list is so short that looking at each is faster.
func seenFor(list *value) map[string]struct{} {
	if len(list.items) <= 16 {
		return nil
	}
	return make(map[string]struct{}, len(list.items))
}

// twice refuses an argument whose name stands among args or in seen.
func (c *checker) twice(a *argument, args []argument, seen map[string]struct{}) bool {
	found := false
	if seen != nil {
		_, found = seen[a.key]
		seen[a.key] = struct{}{}
	} else {
		for i := range args {
			found = found || args[i].key == a.key
		}
	}
	if found {
		c.r.add(a.pos, problem.DuplicateArgument, "keep one of them: Salt would take the last without a word",
			"this argument stands in the list already")
	}
	return found
}

// argument checks the shape of one `- key: value`.
func (c *checker) argument(item *value) (argument, bool) {
	const form = "write it as `- name: value`, one argument an item"
	if item.kind != kindMap {
		c.r.add(item.pos, problem.BadArgument, form, "an argument has to be a name and a value, and this is %s", item.typeName())
		return argument{}, false
	}
	if item.pairs() != 1 {
		if item.pairs() == 0 {
			c.r.add(item.pos, problem.BadArgument, form, "this argument has no name")
		} else {
			c.r.add(item.pos, problem.BadArgument, "begin each of them with a dash of its own",
				"an item holds one argument, and this one holds %d", item.pairs())
		}
		return argument{}, false
	}
	k := item.key(0)
	if k.kind != kindText {
		if k.kind < kindText {
			c.r.add(k.pos, problem.BadKey, "put it in quotes", "the name of an argument has to be text, and this is %s", k.typeName())
		}
		return argument{}, false
	}
	if reserved(k.text) {
		c.r.add(k.pos, problem.ReservedArgument, reservedHint(k.text), "this argument belongs to Salt itself and can't be given")
		return argument{}, false
	}
	return argument{key: k.text, val: *item.val(0), pos: k.pos}, true
}

// reserved says whether Salt would ignore an argument, or take it for its own.
func reserved(key string) bool {
	switch key {
	case "fun", "state", "fire_event", "name_order", "prerequired":
		return true
	}
	return strings.HasPrefix(key, "__")
}

func reservedHint(key string) string {
	switch key {
	case "fun", "state":
		return "the function is named above, as `module.function`"
	case "fire_event":
		return "remove it: it would put results on the master's event bus"
	case "prerequired":
		return "use prereq_in"
	default:
		return "remove it"
	}
}

// special checks the arguments that Salt's compiler itself reads.
func (c *checker) special(f *call, a *argument) {
	switch a.key {
	case "name":
		if a.val.kind != kindText {
			if a.val.kind < kindText {
				c.r.add(a.val.at(a.pos), problem.BadName, "put it in quotes, or leave it out",
					"name has to be text, and this is %s: Salt would take the state ID instead", a.val.typeName())
			} else {
				c.r.add(a.val.pos, problem.BadName, "use names for several", "name has to be text, and this is %s", a.val.typeName())
			}
			return
		}
		c.name(&a.val)
		f.name = a.val.text
	case "names":
		c.names(f, a)
	case "order":
		f.ordered = true
		c.order(a)
	default:
		if form, ok := requisites[a.key]; ok {
			c.requisite(form, a)
		}
	}
}

// at gives the position of v, or that of its key if nothing is written.
func (v *value) at(key position) position {
	if v.kind == kindNull {
		return key
	}
	return v.pos
}

func (c *checker) name(v *value) {
	if strings.Contains(v.text, separator) {
		c.r.add(v.pos, problem.BadName, "put it into a script, or write it differently",
			"a name can't contain %s, which separates the parts of Salt's result keys", separator)
	}
}

// names checks a list of names: text, or one name with arguments of its own.
func (c *checker) names(f *call, a *argument) {
	const form = "write a list of texts; `- name: [- argument: value]` for one with arguments of its own"
	if a.val.kind != kindList {
		c.r.add(a.val.at(a.pos), problem.BadName, form, "names has to be a list, and this is %s", a.val.typeName())
		return
	}
	seen := make(map[string]bool, len(a.val.items)) // true: has arguments of its own
	for i := range a.val.items {
		entry := &a.val.items[i]
		name, own := entry, false
		if entry.kind == kindMap && entry.pairs() == 1 {
			name, own = entry.key(0), true
		}
		if name.kind != kindText {
			c.r.add(entry.at(a.pos), problem.BadName, "put it in quotes; "+form, "each of names has to be text or one name with arguments")
			continue
		}
		c.name(name)
		if own {
			c.namesArguments(name, entry.val(0))
		}
		if had, found := seen[name.text]; found {
			if own || had {
				c.r.add(name.pos, problem.BadName, "keep one of them", "a name with arguments of its own can't stand twice")
			}
			continue // Salt takes a plain repeat once
		}
		seen[name.text] = own
		f.names = append(f.names, name.text)
	}
}

// namesArguments checks the arguments of one name. Salt merges them into the
// state after it has looked for the arguments that reach into other states, so
// those would be ignored here.
func (c *checker) namesArguments(name, list *value) {
	if list.kind != kindList {
		c.r.add(list.at(name.pos), problem.BadName, "write each argument as `- name: value`",
			"the arguments of a name have to be a list, and this is %s", list.typeName())
		return
	}
	args := make([]argument, 0, len(list.items))
	seen := seenFor(list)
	for i := range list.items {
		a, ok := c.argument(&list.items[i])
		if !ok || c.twice(&a, args, seen) {
			continue
		}
		args = append(args, a)
		form, isRequisite := requisites[a.key]
		switch {
		case a.key == "name" || a.key == "names" || isRequisite && form.reachesOut():
			c.r.add(a.pos, problem.ReservedArgument, "give it to the whole function, or use a state ID for each name",
				"%s can't be an argument of one name: Salt would ignore it", a.key)
		case isRequisite:
			c.requisite(form, &a)
		case a.key == "order":
			c.order(&a)
		}
	}
}

// order checks a position. Salt takes anything else for "somewhere".
func (c *checker) order(a *argument) {
	v := &a.val
	if v.kind == kindInt || v.kind == kindFloat || v.kind == kindText && (v.text == "first" || v.text == "last") {
		return
	}
	c.r.add(v.at(a.pos), problem.BadArgument, "write a number, `first` or `last`", "order has to be a number, first or last")
}
