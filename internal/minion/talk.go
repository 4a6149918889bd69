package minion

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/state"
)

// TalkVersion is the version of the conversation with the shim.
const TalkVersion = 1

const maxLine = 32 << 20

// Broken is the code of a conversation that didn't go on: the Salt process is
// gone, or it isn't our shim.
const Broken problem.Code = "conversation_broken"

// Facts are what the Salt process knows about itself and its minion. The paths
// are minion options, never pillar.
type Facts struct {
	ID                string `json:"id"`
	PKIDir            string `json:"pki_dir"`
	StateDir          string `json:"state_dir"`
	RunDir            string `json:"run_dir"` // "" where the minion's configuration names none
	LibDir            string `json:"lib_dir"`
	EtcDir            string `json:"etc_dir"`
	UID               int    `json:"uid"`
	AllowUnprivileged bool   `json:"allow_unprivileged"`
	Multiprocessing   bool   `json:"multiprocessing"`
	Proxy             bool   `json:"proxy"`     // a proxy or deltaproxy
	Resources         bool   `json:"resources"` // 3008's managed resources
	PillarErrors      bool   `json:"pillar_errors"`
	StateRunning      bool   `json:"state_running"` // another state run, or one that waits
}

// Opening is what the shim says first.
type Opening struct {
	Version int    `json:"v"`
	Message string `json:"message"`
	Facts   Facts  `json:"facts"`
}

// Ran is what came back from state.high, without any of its content.
type Ran struct {
	Kind    string
	Results []state.KeyedResult
}

// Talk is the executor's side of the conversation.
type Talk struct {
	in  *bufio.Reader
	out io.Writer
}

// NewTalk speaks over the given pipes.
func NewTalk(in io.Reader, out io.Writer) *Talk {
	return &Talk{in: bufio.NewReaderSize(in, 64<<10), out: out}
}

func broken(err error, what string) error {
	return problem.Wrap(Broken, err, "the Salt process: %s", what)
}

func (t *Talk) hear(v any) error {
	var line []byte
	for {
		part, err := t.in.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return broken(err, "it said nothing")
		}
		if len(line) > maxLine {
			return broken(nil, "it said too much")
		}
	}
	if err := json.Unmarshal(line, v); err != nil {
		return broken(err, "it said something else")
	}
	return nil
}

func (t *Talk) say(v any) error {
	line, err := json.Marshal(v)
	if err == nil {
		_, err = t.out.Write(append(line, '\n'))
	}
	if err != nil {
		return broken(err, "it doesn't listen")
	}
	return nil
}

// Open hears the first line.
func (t *Talk) Open() (Opening, error) {
	var o Opening
	if err := t.hear(&o); err != nil {
		return o, err
	}
	if o.Version != TalkVersion {
		return o, broken(nil, "it speaks another version")
	}
	return o, nil
}

// Facts asks for the facts anew.
func (t *Talk) Facts() (Facts, error) {
	var answer struct {
		Facts *Facts `json:"facts"`
	}
	if err := t.say(map[string]any{"do": "facts"}); err != nil {
		return Facts{}, err
	}
	if err := t.hear(&answer); err != nil {
		return Facts{}, err
	}
	if answer.Facts == nil {
		return Facts{}, broken(nil, "it told no facts")
	}
	return *answer.Facts, nil
}

// Lease asks the Salt process to take the lease for a request, and says
// whether it says so. Nothing is believed before it was probed.
func (t *Talk) Lease(request string, wait time.Duration) (bool, error) {
	var answer struct {
		Lease string `json:"lease"`
	}
	if err := t.say(map[string]any{"do": "lease", "request": request, "wait_s": wait.Seconds()}); err != nil {
		return false, err
	}
	if err := t.hear(&answer); err != nil {
		return false, err
	}
	switch answer.Lease {
	case "held":
		return true, nil
	case "busy":
		return false, nil
	}
	return false, broken(nil, "it can't take the lease")
}

var results = map[string]state.Result{"true": state.True, "false": state.False, "null": state.Null}

// Run hands over high data for the fixed state.high and waits until it is
// over. An error means that nobody knows what ran.
func (t *Talk) Run(request string, high []byte) (Ran, error) {
	var answer struct {
		Kind    string      `json:"kind"`
		Results [][2]string `json:"results"`
	}
	if err := t.say(map[string]any{"do": "run", "request": request, "high": json.RawMessage(high)}); err != nil {
		return Ran{}, err
	}
	if err := t.hear(&answer); err != nil {
		return Ran{}, err
	}
	if answer.Kind == "" {
		return Ran{}, broken(nil, "it told no result")
	}
	ran := Ran{Kind: answer.Kind, Results: make([]state.KeyedResult, 0, len(answer.Results))}
	for _, pair := range answer.Results {
		result, ok := results[pair[1]]
		if !ok {
			result = state.Other
		}
		ran.Results = append(ran.Results, state.KeyedResult{Key: pair[0], Result: result})
	}
	return ran, nil
}

// Return ends the conversation.
func (t *Talk) Return(text string) error {
	return t.say(map[string]any{"do": "return", "text": text})
}
