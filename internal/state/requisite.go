package state

import (
	"strings"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// requisiteForm is how Salt reads one requisite. What it would ignore or break
// on differs by version, so only what all of them understand is taken.
type requisiteForm struct {
	outward bool // reaches into another state: *_in, use, use_in, prereq
	mapping bool // may also be one mapping instead of a list
	byID    bool // takes `id: x`, and plain text, for any state with that ID or name
	bare    bool // takes plain text
}

func (f requisiteForm) reachesOut() bool { return f.outward }

var requisites = map[string]requisiteForm{
	"require":       {byID: true, bare: true},
	"require_any":   {byID: true, bare: true},
	"watch":         {byID: true, bare: true},
	"watch_any":     {byID: true, bare: true},
	"onchanges":     {byID: true, bare: true},
	"onchanges_any": {byID: true, bare: true},
	"onfail":        {byID: true, bare: true},
	"onfail_any":    {byID: true, bare: true},
	"onfail_all":    {byID: true, bare: true},
	"prereq":        {bare: true, outward: true}, // Salt 3006 takes `id: x` for a circle, unless x stands behind
	"listen":        {bare: true},
	"require_in":    {bare: true, outward: true, mapping: true},
	"watch_in":      {bare: true, outward: true, mapping: true},
	"onchanges_in":  {bare: true, outward: true, mapping: true},
	"onfail_in":     {bare: true, outward: true, mapping: true},
	"prereq_in":     {bare: true, outward: true},
	"use":           {bare: true, outward: true},
	"use_in":        {bare: true, outward: true},
	"listen_in":     {}, // plain text breaks Salt after everything has run
}

// requisite checks one requisite argument.
func (c *checker) requisite(form requisiteForm, a *argument) {
	const list = "write it as a list: `- module: ID or name`"
	if a.val.kind == kindMap && form.mapping && a.val.pairs() > 0 {
		for i := range a.val.pairs() {
			c.reference(form, a.key, a.val.key(i), a.val.val(i))
		}
		return
	}
	if a.val.kind != kindList {
		c.r.add(a.val.at(a.pos), problem.BadRequisite, list, "%s has to be a list, and this is %s", a.key, a.val.typeName())
		return
	}
	for i := range a.val.items {
		switch e := &a.val.items[i]; {
		case e.kind == kindText && form.bare:
		case e.kind == kindText:
			c.r.add(e.pos, problem.BadRequisite, "write `- module: ID or name`", "%s has to name the module", a.key)
		case e.kind == kindMap && e.pairs() == 1:
			c.reference(form, a.key, e.key(0), e.val(0))
		case e.kind == kindMap && e.pairs() > 1:
			c.r.add(e.pos, problem.BadRequisite, "begin each of them with a dash of its own",
				"an item of %s points at one state, and Salt would ignore the others", a.key)
		default:
			c.r.add(e.at(a.pos), problem.BadRequisite, list, "an item of %s has to name a module and a state, and this is %s", a.key, e.typeName())
		}
	}
}

// reference checks one `module: ID or name`.
func (c *checker) reference(form requisiteForm, requisite string, module, target *value) {
	switch {
	case module.kind != kindText:
		if module.kind < kindText {
			c.r.add(module.pos, problem.BadRequisite, "write `- module: ID or name`", "the module has to be text, and this is %s", module.typeName())
		}
	case strings.Contains(module.text, "."):
		c.r.add(module.pos, problem.BadRequisite, "write the module alone, without the dot and the function",
			"a requisite names a module, not a function")
	case module.text == "sls":
		c.r.add(module.pos, problem.BadRequisite, "name the states themselves", "sls isn't taken: a source stands alone")
	case module.text == "id" && !form.byID:
		c.r.add(module.pos, problem.BadRequisite, "write the module instead of `id`", "%s has to name the module", requisite)
	case target.kind != kindText:
		c.r.add(target.at(module.pos), problem.BadRequisite, "put it in quotes", "what a requisite points at has to be text, and this is %s", target.typeName())
	}
}
