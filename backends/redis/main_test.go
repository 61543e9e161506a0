package redis_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }
