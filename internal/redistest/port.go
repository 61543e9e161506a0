package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are drawn from below the ranges from which systems number outgoing connections. So a port stays free between a
// server's end and its restart, and a client that dials while nobody listens cannot end up connected to itself.
const (
	lowestPort = 20000
	portCount  = 12000
)

// listen opens a listener on a free loopback port.
func listen() (net.Listener, error) {
	var err error
	for range 100 {
		var l net.Listener
		l, err = net.Listen("tcp", loopback(lowestPort+rand.IntN(portCount)))
		if err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("find a free port: %w", err)
}

// freePort returns a port that was free a moment ago. Another process may take it first.
func freePort() (int, error) {
	l, err := listen()
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
