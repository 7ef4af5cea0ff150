// Answers questions with Google's parser. A question is a file, an agent and a number of URLs; each text has its length
// before it, in four bytes. An answer is a byte for each URL: 1 is allowed.
#include <cstdint>
#include <cstdio>
#include <string>

#include "robots.h"

static bool ReadNumber(uint32_t* n) { return std::fread(n, sizeof *n, 1, stdin) == 1; }

static bool ReadText(std::string* s) {
  uint32_t n;
  if (!ReadNumber(&n)) return false;
  s->resize(n);
  return n == 0 || std::fread(&(*s)[0], n, 1, stdin) == 1;
}

int main() {
  std::string robots, agent, url;
  uint32_t urls;
  while (ReadText(&robots) && ReadText(&agent) && ReadNumber(&urls)) {
    while (urls-- > 0 && ReadText(&url)) {
      googlebot::RobotsMatcher matcher;
      std::putchar(matcher.OneAgentAllowedByRobots(robots, agent, url));
    }
    std::fflush(stdout);
  }
}
