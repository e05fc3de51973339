"""Commands for the tests: dangerous ones, hard stops, and the harmless ones of everyday work."""

DANGEROUS = """
echo x > ~/.bashrc
timeout 5 rm -rf x
env rm -rf x
nohup sh e.sh
ls & rm -rf x
killall node
git branch -D main
git diff --output=f
git diff --outp=f
git remote set-url origin http://evil
echo <(touch x)
env -S'sh e.sh'
env -S "sh e.sh"
sudo ls
watch rm x
find . -exec rm {} ;
find . -exec rm {} \\;
find . -execdir sh -c x \\;
find . -delete
find . -fprint out
find . -fls out
find . -ok rm {} \\;
PATH=/tmp/evil
PATH=/tmp/evil git status
export PATH=/tmp/evil
export PATH=/tmp/evil; git status
typeset -x PATH=/tmp
declare -x PATH=/tmp
readonly PATH=/tmp
alias git=rm
source ./evil.sh
. ./evil.sh
eval 'rm x'
trap 'rm x' EXIT
/proc/self/root/usr/bin/rm x
/lib64/ld-linux-x86-64.so.2 /bin/rm x
rm x || true
true || rm x
ls; rm x
ls | xargs rm
echo x | sh
cat e.sh | bash
echo $(rm x)
echo `rm x`
echo "$(rm x)"
echo "`rm x`"
echo ${x@P}
echo $IFS
ls $(touch x)
cat <<< x
bash -c 'rm x'
bash -lc ls
sh -c "git status; rm x"
sh e.sh
bash
python -c 'import os'
python3 e.py
node -e 'x'
perl -e 'unlink 1'
awk 'BEGIN{system("rm x")}'
sed -i s/a/b/ f
sed s/a/b/w f
sed -n '1e rm x' f
sed -n 1,3w f
sort -o f f
sort --output=f f
sort --compress-program=sh f
rg --pre sh x
rg --pre=sh x
rg --hostname-bin=x y
rg -z x
git -c core.pager=sh log
git -c alias.x='!rm y' x
git -C /tmp status
git --exec-path=/tmp status
git log --output=f
git diff --ext-diff
git show --textconv x
git grep -O x
git grep --open-files-in-pager=sh x
git config core.pager sh
git config --global alias.x '!sh'
git stash drop
git stash
git checkout .
git tag v1
git branch new
git remote add x y
git remote show origin
git push
git fetch
git reflog expire --all
git reflog delete x
git worktree add ../x
git submodule foreach rm x
git bisect run sh
base64 -o f x
tree -o f
uniq a b
date -s tomorrow
tail -f log
hostname evil
jq -f prog x
yq -i x f
curl http://x
wget x
ssh h ls
nc -l 1
dig x.evil.com
nslookup x.evil.com
ping x.evil.com
getent hosts x
tee f
cp a b
mv a b
ln -s / x
chmod 777 f
touch x
mkdir x
dd if=a of=b
truncate -s0 f
printf -v PATH x
read x
set -e
shopt -s expand_aliases
enable -f x y
hash -p /tmp/x ls
unset PATH
exec ls
exec 3<>/dev/tcp/h/1
cat < /dev/tcp/h/1
ls > out
ls >> out
ls >| out
ls &> out
ls >& out
ls 2> out
ls > $x
setsid ls
ionice ls
flock f ls
flock f -c 'rm x'
script -c 'rm x'
su -c 'rm x'
command rm x
builtin eval x
time rm x
nice -n 5 rm x
stdbuf -oL rm x
xargs rm
xargs -I{} sh -c {}
parallel rm
npx evil
docker run alpine
uvx x
busybox rm x
./ls
bin/git status
~/bin/ls
r\\m x
'rm' x
"rm" x
r''m x
$'\\x72m' x
{rm,x}
{ls,-la}
(ls)
{ ls; }
! ls
f() { ls; }
function f { ls; }
for i in 1; do ls; done
while true; do ls; done
if true; then ls; fi
case x in x) ls;; esac
[[ -f x ]]
[[ -n $(rm x) ]]
((1))
echo $((1))
echo "unterminated
echo 'unterminated
ls &&
ls |
ls >
coproc ls
select x in a; do ls; done
ls |& cat
ls &
cd .. && git status
cd / && ls
cat /root/secret
cat ~/notes
cat ../other
ls -la ~
rg x /home
cat .e*
cat .[e]nv
rg x -f ../../pat
grep -f ~/x y
head -c1 /dev/sda
file -C -m x
env LD_PRELOAD=x ls
LD_PRELOAD=x ls
GIT_PAGER=sh git log
sudo -n true
doas ls
echo hi; crontab x
systemctl stop x
kill 1
service x stop
mount x y
go run x
cargo run
npm install x
pip install x
npm run evil
make evil
""".strip("\n").split("\n")
DANGEROUS += [
    "ls -la\nrm -rf x",
    "r\\\nm x",
    "git status \\\n--output=f",
    "ls\rrm x",
    "cat <<E\n$(rm x)\nE",
    "ls\u00a0-la",
    "ls\u202e",
    "ls\x1b[2K",
]

DANGEROUS += [
    "test -v 'a[$(curl x)]'",
    "test -R 'a[$(curl x)]'",
    "[ -v 'a[$(curl x)]' ]",
    "wait -n -p 'a[$(curl x)]'",
    "jobs -x curl x",
    "arch -arm64 rm x",
    "git bisect view push",
    "git remote -v remove origin",
    "git remote --verbose add a ext::sh",
    "git stash -p",
    "git submodule --recursive update",
    "yarn --version",
    "cargo --version",
    "rustc -V",
    "cargo tree",
    "yq 'load_str(\"/etc/shadow\")' a.yml",
    "grep -eA .env README.md",
    "grep -rfA .env README.md",
    "grep --regexp=A .env README.md",
    "rg --regexp=A .env README.md",
]

HARD_STOPS = """
rm -rf /
rm -rf /*
rm -rf //
rm -rf ~
rm -rf ~/
rm -rf ~/*
rm -rf $HOME
rm -rf "$HOME"
rm -rf ${HOME}/
rm -rf .
rm -rf ./
rm -rf *
rm -rf ./*
rm -rf "$PWD"
rm -rf ..
rm -rf ../..
rm -r -f .git
rm -fr .git/
rm --recursive --force .git
rm --rec .git
rm -Rf sub/../.git
/bin/rm -rf /
\\rm -rf /
command rm -rf /
sudo rm -rf /
env -i rm -rf /
env X=1 rm -rf /
timeout 5 rm -rf /
timeout --odd 5 rm -rf /
nice nohup rm -rf ~
busybox rm -rf /
xargs rm -rf /
bash -c 'rm -rf /'
bash -lc "rm -rf ~"
sh -c "sh -c 'rm -rf /'"
eval rm -rf /
eval "rm -rf /"
trap 'rm -rf /' EXIT
echo $(rm -rf /)
echo "$(rm -rf ~)"
echo `rm -rf /`
(rm -rf /)
{ rm -rf /; }
if true; then rm -rf /; fi
for i in 1; do rm -rf ~; done
f() { rm -rf /; }; f
ls & rm -rf /
true || rm -rf /
rm > /dev/null -rf /
> /dev/null rm -rf /
A=b rm -rf /
$'rm' -rf /
r\\m -rf /
rm -rf {/,x}
rm -rf -- /
rm -rf $UNKNOWN
rm -rf "$UNKNOWN"/
cd / && rm -rf *
cd && rm -rf *
cd sub && rm -rf ..
find / -delete
find . -delete
find . -type f -delete
find . -name '*' -delete
find ~ -exec rm -rf {} +
/proc/self/root/bin/rm -rf /
/lib64/ld-linux-x86-64.so.2 /bin/rm -rf /
mv .git /tmp/x
mv ~ /tmp
git reset --hard
git reset --har HEAD~1
git -C sub reset --hard
git clean -f
git clean -xdf
git clean --force
git -c clean.requireForce=false clean -d
git push --force
git push -f
git push origin +main
git push --force-with-lease
git push --mirror
shutdown now
sudo reboot
poweroff
halt
systemctl poweroff
init 0
dd if=x of=/dev/sda
echo x > /dev/sda
cat x >/dev/nvme0n1
mkfs.ext4 /dev/sda1
tee /dev/sda
watch rm -rf /
setsid rm -rf /
docker run x rm -rf /
uv run rm -rf ~
git -c alias.x='!rm -rf /' x
find . -name x -exec rm -rf / \\;
su -c 'rm -rf /'
flock f rm -rf /
""".strip("\n").split("\n")
HARD_STOPS += [
    "sh -c 'echo x > /dev/sda'",
    "eval 'cat a > /dev/vda'",
    "timeout 3 bash -co pipefail 'rm -rf ~'",
    "bash -c 'sh -c \"echo > /dev/nvme0n1\"'",
]
HARD_STOPS += ["r\\\nm -rf /", "rm \\\n-rf /", "cat <<E\n$(rm -rf /)\nE"]

HARMLESS = r"""
git status
git status -sb
git log --oneline -20
git log -p -- src/a.py
git log --format=%H -1
git diff
git diff --stat HEAD~1
git diff --cached
git show HEAD
git show HEAD:src/a.py
git branch
git branch -a
git branch --show-current
git rev-parse HEAD
git ls-files
git blame src/a.py
git remote -v
git stash list
git tag -l
git config --get user.name
git add -A
git add src/a.py
git commit -m 'fix shutdown race'
git commit -am "rm -rf is not run here"
git checkout -b feature
git switch main
git restore src/a.py
git merge main
git rebase main
git stash
git stash pop
git cherry-pick abc123
git reset HEAD~1
git reset --soft HEAD~1
git clean -n
git init
git tag v1.0
git branch -d old
git mv a b
git rm a.txt
git push
git push origin main
git fetch
git pull --rebase
ls
ls -la
ls -la src/
ls *.py
cat README.md
cat a.txt b.txt
cat -n src/a.py
head -20 README.md
head -n 5 a.txt
tail -50 log.txt
tail -n +3 a.txt
wc -l src/a.py
wc -l *.py
grep -rn foo src
grep -n "def main" a.py
grep -c x a.txt
rg foo
rg -n "class Foo" src
rg --files
rg -l foo -g '*.py'
find . -name '*.py'
find src -type f -name "test_*"
find . -maxdepth 2 -type d
find . -name '*.pyc' -delete
find . -name __pycache__ -exec rm -rf {} +
pwd
echo hello
echo asphalt
echo "reboot is a word"
echo 'rm -rf /'
which python
file a.txt
stat a.txt
du -sh .
df -h
tree -L 2
sed -n 1,20p a.py
sed -n '5p' a.py
sed -i s/a/b/ a.txt
sort a.txt
sort -u a.txt
sort a.txt | uniq -c | sort -rn | head
uniq a.txt
cut -d, -f1 a.csv
tr a-z A-Z
diff a.txt b.txt
jq .name package.json
date
date +%Y-%m-%d
whoami
uname -a
hostname
id
env
printenv PATH
basename src/a.py
dirname src/a.py
realpath src
sha256sum a.txt
sleep 1
true
test -f a.txt
python --version
python -m pytest -q
python -m pytest tests/test_a.py -k foo
python -m unittest
python -m mypy src
python -m pip list
python -m pip install -e .
python -m venv .venv
python script.py
python -c 'print(1)'
python3 setup.py build
pytest
pytest -q -x
pytest tests/ --cov=src
ruff check .
ruff format .
mypy src
pyright
black .
pip install requests
pip list
uv run pytest
uv sync
poetry run pytest
tox
pre-commit run --all-files
npm test
npm run build
npm run lint
npm install
npm ci
npx tsc --noEmit
npx eslint .
yarn test
pnpm build
node index.js
tsc
cargo build
cargo test
cargo check
cargo clippy
cargo fmt
cargo run
go build ./...
go test ./...
go vet ./...
go run main.go
make
make test
make -j4
cmake -B build
cmake --build build
gcc -o a a.c
./a.out
./gradlew test
mvn test
docker ps
docker build .
mkdir -p src/new
touch a.txt
cp a.txt b.txt
mv a.txt c.txt
rm a.txt
rm -f a.txt
rm -rf build
rm -rf ./build
rm -rf build dist *.egg-info
rm -rf node_modules
rm -rf build/*
rm -rf /tmp/work
chmod +x run.sh
ln -s a b
tar xzf a.tar.gz
unzip a.zip
curl http://localhost:8000
echo x > a.txt
echo x >> a.txt
cat a.txt > b.txt
ls > /dev/null 2>&1
pytest 2>&1 | tail -20
pytest > out.txt 2>&1
pytest > /tmp/out.txt
cd src && ls
cd src && pytest -q
cd src; ls; cd ..
mkdir build && cd build && cmake ..
ls && git status && git diff
ls | wc -l
cat a.txt | grep x | sort
timeout 60 pytest -q
time pytest
nohup ls
env FOO=1 pytest
FOO=1 pytest
export FOO=1 && pytest
source .venv/bin/activate && pytest
for f in *.py; do echo $f; done
if [ -f a.txt ]; then cat a.txt; fi
[ -d src ] && ls src
echo "$(git rev-parse HEAD)"
echo $HOME
VERSION=$(cat VERSION); echo $VERSION
bash script.sh
bash -c 'git status'
sh build.sh
ls | xargs wc -l
(cd src && make)
python - <<'EOF'
awk '{print $1}' a.txt
cat /etc/os-release
ls /usr/lib
ls /opt
kill %1
ps aux
git log --since=yesterday --author=me
git diff main...HEAD -- src
""".strip("\n").split("\n")
HARMLESS[HARMLESS.index("python - <<'EOF'")] = "python - <<'EOF'\nprint('rm -rf /')\nEOF"
HARMLESS += [
    "cat > a.py <<'EOF'\nimport os\nEOF",
    "git add -A \\\n  && git commit -m 'x'",
    "ls -la # list\npwd",
]
