package daemon

import (
	"os"
	"strconv"
	"strings"
)

// memoryShare is how much of the memory that the process may have is counted on, in percent: the rest is for garbage that is not
// collected yet, for stacks and for the system.
const memoryShare = 50

// memoryLimit is how much of the heap may be in use before calls are refused: what the operator says, or a share of what the
// container or the machine has. 0, for no limit, where neither tells.
func memoryLimit(configured int64) int64 {
	if configured > 0 {
		return configured
	}
	limit := machineMemory()
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if raw, err := os.ReadFile(file); err == nil {
			if bytes, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64); err == nil && bytes > 0 && (limit == 0 || bytes < limit) {
				limit = bytes
			}
		}
	}
	return limit / 100 * memoryShare
}

// machineMemory is what /proc/meminfo calls MemTotal, in bytes; 0 where there is no such file.
func machineMemory() int64 {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return totalMemory(string(raw))
}

func totalMemory(meminfo string) int64 {
	for line := range strings.Lines(meminfo) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			kilobytes, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil || kilobytes < 0 || kilobytes > 1<<43 {
				return 0
			}
			return kilobytes << 10
		}
	}
	return 0
}
