package redistest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// replyError is what the server answers instead of a result.
type replyError string

func (e replyError) Error() string { return string(e) }

// refusesStrangers reports whether err is the answer of a healthy server that asks for a password.
func refusesStrangers(err error) bool {
	e, ok := err.(replyError)
	return ok && (strings.HasPrefix(string(e), "NOAUTH") || strings.HasPrefix(string(e), "NOPERM"))
}

// ask sends one command on a connection of its own and returns the reply, until ctx is done. It speaks the protocol itself:
// a client library would add commands of its own to those it is asked to look at.
func ask(ctx context.Context, addr string, args ...string) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		return "", err
	}
	return readReply(bufio.NewReader(conn))
}

// readReply reads a status, an error, an integer or a string.
func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest := line[0], strings.TrimRight(line[1:], "\r\n")
	switch kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "", replyError(rest)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return "", err
		}
		body := make([]byte, n+len("\r\n"))
		_, err = io.ReadFull(r, body)
		return string(body[:n]), err
	}
	return "", fmt.Errorf("unexpected reply %q", line)
}
