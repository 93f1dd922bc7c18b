"""The ground floor: instances, orders and schedules, their files, times, rules and measures."""
