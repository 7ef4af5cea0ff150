# Answers questions with WWW::RobotRules, as google.cc does with Google's parser.
use strict;
use warnings;
use WWW::RobotRules;

sub number { read(STDIN, my $b, 4) == 4 or exit; return unpack("V", $b) }
sub text { my $n = number(); return "" if !$n; read(STDIN, my $b, $n) == $n or exit; return $b }

binmode STDIN;
binmode STDOUT;
$| = 1;
local $SIG{__WARN__} = sub { };
while (1) {
    my ($robots, $agent) = (text(), text());
    my $rules = WWW::RobotRules->new($agent);
    $rules->parse("http://site.example/robots.txt", $robots);
    print join("", map { chr($rules->allowed(text()) ? 1 : 0) } 1 .. number());
}
