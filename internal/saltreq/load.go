package saltreq

import (
	"bytes"
	"regexp"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

const (
	// protocolVersion is what Salt calls `version` in the envelope. Without
	// it, or with a lower one, the master answers "bad load".
	protocolVersion = 3
	// maxArg bounds the argument: a message of at most 256 KiB in base64, and
	// some room for a prefix.
	maxArg = 352 << 10
	maxID  = 255
)

var (
	jidShape = regexp.MustCompile(`^[0-9]{20}$`)
	// A minion ID that means itself wherever Salt takes a glob, a list or a
	// path: no wildcard, comma, slash, blank or control character.
	idShape  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@:+-]*$`)
	argShape = regexp.MustCompile(`^[A-Za-z0-9_.:+/=~-]+$`)
	// Salt takes `name=value` in a string argument for a keyword argument
	// (KWARG_REGEX in salt/utils/args.py): also base64 with one sign of
	// padding, where nothing before it is + or /.
	kwargShape = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*=(?:$|[^=])`)
)

func checkID(id string) error {
	if len(id) > maxID || !idShape.MatchString(id) {
		return problem.New(problem.BadField, "the target isn't one literal minion ID").
			WithHint("letters, digits and _ . @ : + - ; no wildcard, list or path")
	}
	return nil
}

func (p Publish) check() error {
	if p.Fun.String() == "" {
		return problem.New(problem.Internal, "a function outside of the closed set")
	}
	if err := checkID(p.Target); err != nil {
		return err
	}
	if !jidShape.MatchString(p.JID) {
		return problem.New(problem.Internal, "a JID has 20 digits")
	}
	if !p.Fun.takesArg() {
		if p.Arg != "" {
			return problem.New(problem.Internal, "%s takes no argument from us", p.Fun)
		}
		return nil
	}
	if len(p.Arg) > maxArg {
		return problem.New(problem.TooLarge, "the message is too large to be published")
	}
	if !argShape.MatchString(p.Arg) || kwargShape.MatchString(p.Arg) {
		return problem.New(problem.Internal, "the argument isn't one that Salt hands on as it is").
			WithHint("base64 without padding")
	}
	return nil
}

// encodePublish writes the whole request, key included. It is the only place
// that builds a publish, and it writes every field by name, in this order,
// each from a literal or from a checked value.
//
// `ret` is always "", `kwargs` always empty: with a returner, ret_kwargs or
// module_executors a login could write files on a minion as root.
func encodePublish(p Publish, user, key string) ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	e := packer{enc: msgpack.NewEncoder(&buf)}
	e.envelope()
	e.mapLen(10)
	e.pair("cmd", "publish")
	e.pair("fun", p.Fun.String())
	e.str("arg")
	e.arrayLen(1)
	if p.Fun.takesArg() {
		e.str(p.Arg)
	} else {
		// A literal. A minion takes it as the keyword argument wait=True.
		e.str("wait=True")
	}
	e.str("tgt")
	e.arrayLen(1)
	e.str(p.Target)
	e.pair("tgt_type", "list")
	e.pair("user", user)
	e.pair("ret", "")
	e.pair("jid", p.JID)
	e.str("kwargs")
	e.mapLen(0)
	e.pair("key", key)
	return buf.Bytes(), e.err
}

// encodeKeyPrint asks for one accepted key. It carries no `user`: the wheel
// client hands every field on to key.print, which takes `match` alone, and
// with a user in the load it answers an error.
func encodeKeyPrint(id, key string) ([]byte, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	e := packer{enc: msgpack.NewEncoder(&buf)}
	e.envelope()
	e.mapLen(4)
	e.pair("cmd", "wheel")
	e.pair("fun", "key.print")
	e.pair("match", id)
	e.pair("key", key)
	return buf.Bytes(), e.err
}

// packer keeps the first error, so that a load reads as a list of its fields.
type packer struct {
	enc *msgpack.Encoder
	err error
}

func (p *packer) do(err error) {
	if p.err == nil {
		p.err = err
	}
}

func (p *packer) mapLen(n int)     { p.do(p.enc.EncodeMapLen(n)) }
func (p *packer) arrayLen(n int)   { p.do(p.enc.EncodeArrayLen(n)) }
func (p *packer) str(s string)     { p.do(p.enc.EncodeString(s)) }
func (p *packer) pair(k, v string) { p.str(k); p.str(v) }

func (p *packer) envelope() {
	p.mapLen(3)
	p.pair("enc", "clear")
	p.str("version")
	p.do(p.enc.EncodeInt(protocolVersion))
	p.str("load")
}
