//go:build salt

package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// Issue 5: the master's event bus is a loopback port (`ipc_mode: tcp`). masterd
// reads that in the master's configuration, joins there, and the main job runs.
func TestBusOnALoopbackPort(t *testing.T) {
	before, err := os.ReadFile(salt.MasterConfigPath())
	if err != nil {
		t.Fatal(err)
	}
	if err := salt.StopMasterd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := salt.StopMaster(t.Context()); err != nil {
		t.Fatal(err)
	}
	replace(t, salt.MasterConfigPath(), append(before, tcpMode(t)...))
	socket := filepath.Join(salt.SockDir(), "master_event_pub.ipc")
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	// Not by the lab's StartMaster, which waits for the Unix socket.
	running, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = salt.Run(running, salt.Caller, "salt-master", "-c", salt.MasterConfigDir())
	}()
	t.Cleanup(func() {
		end()
		<-ended
		ctx := context.WithoutCancel(t.Context())
		_ = salt.StopMasterd(ctx)
		replace(t, salt.MasterConfigPath(), before)
		if err := salt.StartMaster(ctx); err != nil {
			t.Fatal(err)
		}
		if err := salt.StartMasterd(ctx); err != nil {
			t.Fatal(err)
		}
		awaitMinions(ctx, t)
	})
	if err := salt.StartMasterd(t.Context()); err != nil { // it is ready once it has joined the bus
		t.Fatal(err)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Fatal("the bus is a Unix socket still")
	}
	if err := salt.AwaitMinion(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	s := request(t, plain, ordered)
	want(t, apply(t, s), "succeeded", "")
	if got := order(t, s); len(got) != 3 {
		t.Errorf("ran %v", got)
	}
}

// tcpMode gives the lines of a master's configuration, with free ports.
func tcpMode(t *testing.T) string {
	t.Helper()
	text := "\nipc_mode: tcp\n"
	for _, option := range []string{"tcp_master_pub_port", "tcp_master_pull_port", "tcp_master_publish_pull", "tcp_master_workers"} {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // all at once, so that they differ
		text += fmt.Sprintf("%s: %d\n", option, l.Addr().(*net.TCPAddr).Port)
	}
	return text
}
