//go:build salt

package eventbus_test

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/eventbus"
	"github.com/oduflow/oduflow-salt/internal/saltreq/reqtest"
)

// A real master's bus, in both of its modes: one event of ours among those of
// other tags.
func TestRealBus(t *testing.T) {
	const script = `
import sys, salt.config, salt.utils.event
o = salt.config.client_config(sys.argv[1])
with salt.utils.event.get_event("master", sock_dir=o["sock_dir"], opts=o, listen=False) as e:
    for tag in ("other/tag", "salt/job/x", "salt/job/20261130181033417609/ret/minion-1"):
        e.fire_event({"jid": "20261130181033417609", "id": "minion-1", "fun": "oduflow.start", "return": "ok", "retcode": 0, "success": True}, tag)
`
	for _, mode := range []string{"ipc", "tcp"} {
		t.Run(mode, func(t *testing.T) {
			r := reqtest.StartReal(t, reqtest.RealOptions{ACL: []string{"oduflow.*"}, Extra: "ipc_mode: " + mode})
			cfg := eventbus.Config{Network: "unix", Address: filepath.Join(r.Dir, "run", "master_event_pub.ipc"), Now: clock, Jitter: func() float64 { return 0 }}
			if mode == "tcp" {
				cfg.Network, cfg.Address = "tcp", "127.0.0.1:"+strconv.Itoa(r.BusPort)
			}
			c, ctx, _ := run(t, cfg)
			wantGap(ctx, t, c, eventbus.ReasonFirstJoin)
			out, err := exec.CommandContext(ctx, r.Python, "-W", "ignore", "-c", script, filepath.Join(r.Dir, "conf", "master")).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			ev := wantEvent(ctx, t, c, "salt/job/20261130181033417609/ret/minion-1")
			got, err := eventbus.DecodeReturn(ev)
			if err != nil || got.Text != "ok" || got.Fun != "oduflow.start" || !got.Success {
				t.Fatalf("%+v, %v", got, err)
			}
			if st := c.Stats(); st.Skipped < 2 || st.BadEvents != 0 || st.BadFrames != 0 {
				t.Fatalf("%+v", st)
			}
		})
	}
}
