package saltconfig

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

const (
	maxFile     = 4 << 20
	maxIncludes = 8 // levels
)

// options are the top-level settings of a file, not yet resolved: Salt's
// loader and yaml.v3 disagree about plain scalars.
type options map[string]*yaml.Node

// readWithIncludes follows master_config: the file, then default_include, then
// include, each beside the file, and each replacing whole settings.
func readWithIncludes(path string) (options, error) {
	opts, err := readFile(path)
	if err != nil {
		return nil, err
	}
	patterns := []string{"master.d/*.conf"}
	if node := opts["default_include"]; node != nil {
		if patterns, err = stringsOf(node, path, "default_include"); err != nil {
			return nil, err
		}
	}
	if err := include(opts, patterns, path, 0); err != nil {
		return nil, err
	}
	if node := opts["include"]; node != nil {
		if patterns, err = stringsOf(node, path, "include"); err != nil {
			return nil, err
		}
		if err := include(opts, patterns, path, 0); err != nil {
			return nil, err
		}
	}
	return opts, nil
}

// include reads all files of the patterns into one set, in which maps and
// lists grow, and then lets that set replace settings of into. That is Salt's
// way: a publisher_acl in two included files is one, and hides the main one.
func include(into options, patterns []string, from string, level int) error {
	if level >= maxIncludes {
		return problem.New(problem.BadConfig, "the includes of %s go too deep", from)
	}
	all := options{}
	for _, pattern := range patterns {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(from), pattern)
		}
		files, err := filepath.Glob(pattern)
		if err != nil {
			return problem.Wrap(problem.BadConfig, err, "an include pattern in %s", from)
		}
		slices.Sort(files)
		for _, file := range files {
			opts, err := readFile(file)
			if err != nil {
				return err
			}
			if node := opts["include"]; node != nil {
				deeper, err := stringsOf(node, file, "include")
				if err != nil {
					return err
				}
				if err := include(opts, deeper, file, level+1); err != nil {
					return err
				}
			}
			for key, node := range opts {
				all[key] = grow(all[key], node)
			}
		}
	}
	for key, node := range all {
		into[key] = node
	}
	return nil
}

// grow merges two values as salt.utils.dictupdate does: maps key by key, lists
// one after the other, anything else is replaced.
func grow(old, next *yaml.Node) *yaml.Node {
	if old == nil || old.Kind != next.Kind {
		return next
	}
	switch next.Kind {
	case yaml.SequenceNode:
		merged := *old
		merged.Content = append(slices.Clone(old.Content), next.Content...)
		return &merged
	case yaml.MappingNode:
		merged := *old
		merged.Content = slices.Clone(old.Content)
		for i := 0; i+1 < len(next.Content); i += 2 {
			key, value := next.Content[i], resolve(next.Content[i+1])
			at := 0
			for at < len(merged.Content) && merged.Content[at].Value != key.Value {
				at += 2
			}
			if at < len(merged.Content) {
				merged.Content[at+1] = grow(resolve(merged.Content[at+1]), value)
				continue
			}
			merged.Content = append(merged.Content, key, value)
		}
		return &merged
	case yaml.DocumentNode, yaml.ScalarNode, yaml.AliasNode:
	}
	return next
}

func readFile(path string) (options, error) {
	bad := func(err error) error {
		return problem.Wrap(problem.BadConfig, err, "Salt's configuration %s can't be read", path).
			WithHint("masterd's user needs to read it: in Salt's packages that is the group salt")
	}
	f, err := os.Open(path) // #nosec G304 -- the operator names it
	if err != nil {
		return nil, bad(err)
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, bad(err)
	}
	if len(raw) > maxFile {
		return nil, bad(errors.New("too large"))
	}
	var doc yaml.Node
	dec := yaml.NewDecoder(strings.NewReader(string(raw)))
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return options{}, nil
	} else if err != nil {
		return nil, bad(err)
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, bad(errors.New("more than one document"))
	}
	root := resolve(doc.Content[0])
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return options{}, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, bad(errors.New("not a mapping"))
	}
	opts := options{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key := root.Content[i].Value
		if root.Content[i].Tag == "!!merge" {
			return nil, bad(errors.New("a merge key at the top"))
		}
		if opts[key] != nil {
			return nil, bad(errors.New("the setting " + key + " stands there twice"))
		}
		opts[key] = resolve(root.Content[i+1])
	}
	return opts, nil
}

func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// stringsOf takes one string or a list of strings.
func stringsOf(n *yaml.Node, file, key string) ([]string, error) {
	n = resolve(n)
	items := []*yaml.Node{n}
	switch {
	case n.Tag == "!!null" || n.Kind == yaml.ScalarNode && n.Value == "":
		return nil, nil
	case n.Kind == yaml.SequenceNode:
		items = n.Content
	}
	out := make([]string, 0, len(items))
	for _, item := range items {
		if item = resolve(item); item.Kind != yaml.ScalarNode {
			return nil, problem.New(problem.BadConfig, "%s in %s isn't a string or a list of strings", key, file)
		}
		out = append(out, item.Value)
	}
	return out, nil
}

// reader takes settings out of options and keeps the first error.
type reader struct {
	opts options
	file string
	err  error
}

func (r *reader) fail(key, what, hint string) {
	if r.err == nil {
		r.err = problem.New(problem.BadConfig, "%s in Salt's configuration %s %s", key, r.file, what).WithHint("%s", hint)
	}
}

func (r *reader) has(key string) bool {
	n := r.opts[key]
	return n != nil && n.Tag != "!!null"
}

func (r *reader) scalar(key string) (string, bool) {
	n := r.opts[key]
	if n == nil {
		return "", false
	}
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		r.fail(key, "isn't a plain value", "")
		return "", false
	}
	return n.Value, true
}

func (r *reader) text(key, otherwise string) string {
	if s, ok := r.scalar(key); ok {
		return s
	}
	return otherwise
}

func (r *reader) port(key string, otherwise int) int {
	s, ok := r.scalar(key)
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || (len(s) > 1 && s[0] == '0') {
		r.fail(key, "isn't a port", "")
		return otherwise
	}
	return int(n)
}

// boolean takes the words that Salt's loader takes, which are more than
// yaml.v3's.
func (r *reader) boolean(key string, otherwise bool) bool {
	s, ok := r.scalar(key)
	if !ok {
		return otherwise
	}
	switch strings.ToLower(s) {
	case "true", "yes", "on":
		return true
	case "false", "no", "off":
		return false
	}
	r.fail(key, "isn't True or False", "")
	return otherwise
}

// acl takes {name: [function, …]}, in which a function may also be a map from
// a target to its functions.
func (r *reader) acl(key string) map[string][]string {
	out := map[string][]string{}
	n := r.opts[key]
	if n == nil || n.Tag == "!!null" {
		return out
	}
	if n.Kind != yaml.MappingNode {
		r.fail(key, "isn't a mapping of users", "")
		return out
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		rules := resolve(n.Content[i+1])
		functions := []string{}
		if rules.Kind == yaml.SequenceNode {
			for _, rule := range rules.Content {
				functions = append(functions, flatten(resolve(rule))...)
			}
		}
		out[n.Content[i].Value] = functions
	}
	return out
}

func flatten(n *yaml.Node) []string {
	switch n.Kind {
	case yaml.ScalarNode:
		return []string{n.Value}
	case yaml.MappingNode, yaml.SequenceNode:
		var out []string
		for i, item := range n.Content {
			if n.Kind == yaml.SequenceNode || i%2 == 1 {
				out = append(out, flatten(resolve(item))...)
			}
		}
		return out
	case yaml.DocumentNode, yaml.AliasNode:
	}
	return nil
}
