//go:build salt

package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// fakeMaster greets as a ZeroMQ server does and keeps every byte that it gets.
const fakeMaster = `
import socket, sys, threading
out, port = sys.argv[1], int(sys.argv[2])
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", port)); s.listen(16)
print("listening", flush=True)
lock = threading.Lock()
def serve(c):
    greeting = b"\xff" + b"\0" * 8 + b"\x7f\x03\x00NULL" + b"\0" * 48
    c.sendall(greeting[:64])
    ready = b"\x05READY\x0bSocket-Type\0\0\0\x06ROUTER\x08Identity\0\0\0\0"
    c.sendall(b"\x04" + bytes([len(ready)]) + ready)
    while True:
        b = c.recv(65536)
        if not b: break
        with lock, open(out, "ab") as f: f.write(b)
while True:
    c, _ = s.accept()
    threading.Thread(target=serve, args=(c,), daemon=True).start()
`

// listenAsNobody takes the master's request port as another user. The function
// that it returns ends that and gives what was received.
func listenAsNobody(t *testing.T) func() []byte {
	t.Helper()
	out := filepath.Join(scratch(t), "received")
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", fakeMaster, out, fmt.Sprint(salt.Ports.Ret))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(pipe).ReadString('\n'); err != nil || line != "listening\n" {
		t.Fatalf("the foreign listener: %q %v", line, err)
	}
	return func() []byte {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		raw, _ := os.ReadFile(out)
		return raw
	}
}
