package saltreq

import (
	"bytes"
	"errors"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/oduflow/oduflow-salt/internal/msgpackwalk"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

const (
	// maxAnswer bounds an answer of the master. What we ask for is answered in
	// less than 4 KiB.
	maxAnswer = 64 << 10
	maxDepth  = 16
)

// decodeAnswer decodes exactly one msgpack value, after a look at whether that
// can be done: the decoder believes what a header announces.
func decodeAnswer(raw []byte) (any, error) {
	if len(raw) > maxAnswer {
		return nil, errors.New("answer too large")
	}
	if err := msgpackwalk.Check(raw, maxDepth); err != nil {
		return nil, err
	}
	return msgpack.NewDecoder(bytes.NewReader(raw)).DecodeInterface()
}

// classify says what an answer to a publish of jid to target proves. It is
// pure, total, and in doubt Unknown.
func classify(raw []byte, jid, target string) Published {
	unknown := func(r Reason) Published { return Published{Outcome: Unknown, Reason: r} }
	v, err := decodeAnswer(raw)
	if err != nil {
		return unknown(ReasonUnintelligible)
	}
	top, ok := v.(map[string]any)
	if !ok {
		// "bad load", "Some exception handling minion payload" and the like.
		return unknown(ReasonMasterError)
	}
	if _, has := top["error"]; has {
		return classifyError(top)
	}
	load, ok := top["load"].(map[string]any)
	if enc, _ := text(top["enc"]); !ok || enc != "clear" {
		return unknown(ReasonUnintelligible)
	}
	got, hasJID := load["jid"]
	minions, isList := names(load["minions"])
	missing, missingIsList := names(load["missing"])
	fault, hasFault := load["error"]
	switch {
	case !hasJID:
		return unknown(ReasonUnintelligible)
	case got == nil:
		// The one place that answers so names a target error and no minion.
		if message, ok := text(fault); ok && message != "" && isList && len(minions) == 0 {
			return Published{Outcome: NotSent, Reason: ReasonTargetUnmatched}
		}
		return unknown(ReasonUnintelligible)
	case hasFault:
		return unknown(ReasonMasterError)
	}
	if s, ok := text(got); !ok || s != jid {
		return unknown(ReasonOtherJID)
	}
	if !isList || len(minions) != 1 || minions[0] != target ||
		(load["missing"] != nil && !missingIsList) || len(missing) != 0 {
		return unknown(ReasonOtherMinions)
	}
	return Published{Outcome: Sent}
}

// classifyError takes an answer that has `error` at its top. Only the two
// refusals of a login, alone in the answer, prove that nothing was sent.
func classifyError(top map[string]any) Published {
	fault, ok := top["error"].(map[string]any)
	if !ok || len(top) != 1 {
		return Published{Outcome: Unknown, Reason: ReasonMasterError}
	}
	switch name, _ := text(fault["name"]); name {
	case "AuthenticationError":
		return Published{Outcome: NotSent, Reason: ReasonAuthentication}
	case "AuthorizationError":
		return Published{Outcome: NotSent, Reason: ReasonAuthorization}
	}
	return Published{Outcome: Unknown, Reason: ReasonMasterError}
}

// keyOf takes the accepted key of id out of an answer to key.print.
func keyOf(raw []byte, id string) (string, error) {
	v, err := decodeAnswer(raw)
	if err != nil {
		return "", silent(err, "the Salt master answered something that isn't an answer")
	}
	top, ok := v.(map[string]any)
	if !ok {
		return "", silent(nil, "the Salt master didn't take the question for a key")
	}
	if fault, has := top["error"]; has {
		name := ""
		if m, ok := fault.(map[string]any); ok {
			name, _ = text(m["name"])
		}
		if name == "UserAuthenticationError" || name == "AuthenticationError" {
			return "", silent(nil, "the Salt master refused masterd's login").
				WithHint("is masterd's user in the master's publisher_acl, and was the master started as root?")
		}
		return "", silent(nil, "the Salt master answered the question for a key with an error")
	}
	data, _ := top["data"].(map[string]any)
	ret, ok := data["return"].(map[string]any)
	if success, isBool := data["success"].(bool); !ok || !isBool || !success {
		return "", silent(nil, "the Salt master couldn't look up the key")
	}
	// Other statuses (minions_pre, minions_rejected, minions_denied) have maps
	// of their own: a key that waits for acceptance is no accepted key.
	accepted, ok := ret["minions"].(map[string]any)
	if !ok && ret["minions"] != nil {
		return "", silent(nil, "the Salt master answered keys of another shape")
	}
	pem, ok := text(accepted[id])
	if !ok || pem == "" {
		return "", problem.New(problem.TargetUnknown, "the Salt master has no accepted key for this target").
			WithHint("salt-key -l accepted")
	}
	return pem, nil
}

// silent is the error of a question that has no effect and got no answer.
func silent(cause error, message string) *problem.Error {
	return &problem.Error{Code: problem.ExecutorSilent, Message: message, Cause: cause}
}

// text takes a msgpack str or bin for a string: which of both Salt sends
// depends on its version and on where a value came from.
func text(v any) (string, bool) {
	switch s := v.(type) {
	case string:
		return s, true
	case []byte:
		return string(s), true
	}
	return "", false
}

func names(v any) ([]string, bool) {
	list, ok := v.([]any)
	if !ok {
		return nil, false
	}
	out := make([]string, 0, len(list))
	for _, item := range list {
		s, ok := text(item)
		if !ok {
			return nil, false
		}
		out = append(out, s)
	}
	return out, true
}
