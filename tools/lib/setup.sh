# SPDX-License-Identifier: Apache-2.0
#
# What tools/test.sh and tools/demo.sh share: bring a Debian machine to the point where `make` works. Sourced,
# from the project's root. It installs what is missing and nothing else, says so when it does, and is silent
# when all is there.

# By names that Debian 12, Debian 13 and Ubuntu 24.04 all have.
setup_packages="git ca-certificates make cmake gcc g++ libc6-dev pkg-config python3 python3-venv
    libjpeg-dev libpng-dev zlib1g-dev libyajl-dev libssl-dev libdw-dev liburing-dev
    libopenmpi-dev openmpi-bin libjs-chart.js"
setup_test_packages="clang clang-format libclang-rt-dev libomp-dev libcmocka-dev binutils ninja-build"
# Pages of reports are tested in a browser where there is one.
setup_browser_packages="chromium chromium-driver python3-selenium"
setup_onednn="onednn-devel-cpu-gomp==2023.2.0 onednn-cpu-gomp==2023.2.0"

say() {
    echo "setup: $*"
}

die() {
    echo "setup: $*" >&2
    exit 2
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        env DEBIAN_FRONTEND=noninteractive "$@"
    else
        sudo -n env DEBIAN_FRONTEND=noninteractive "$@"
    fi
}

can_be_root() {
    [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

is_installed() {
    # A virtual package (pkg-config of pkgconf) counts through what provides it.
    dpkg-query -W -f='${Status}\n' "$1" 2>/dev/null | grep -q '^install ok installed$' ||
        dpkg-query -W -f='${Status} ${Provides}\n' 2>/dev/null | grep '^install ok installed' | grep -qw -- "$1"
}

# The package lists may be empty (an image) or old (a package version that the mirror no longer has).
update_lists() {
    say "apt-get update"
    as_root apt-get update -q >build/setup.log 2>&1 || {
        tail -n 5 build/setup.log >&2
        die "apt-get update failed"
    }
}

# Install what is missing of the packages named.
setup_install() {
    missing=
    for package in "$@"; do
        is_installed "$package" || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null || die "this is not Debian or Ubuntu; install what there stands for:$missing"
    can_be_root || die "these packages are missing, and this is neither root nor may it use sudo:$missing"
    say "apt-get install$missing"
    if ! as_root apt-get install -q -y --no-install-recommends $missing >build/setup.log 2>&1; then
        update_lists
        as_root apt-get install -q -y --no-install-recommends $missing >build/setup.log 2>&1 || {
            tail -n 20 build/setup.log >&2
            die "apt-get install failed"
        }
    fi
}

# The same for what some tests would like: what the distribution does not have is left out.
setup_optional() {
    command -v apt-cache >/dev/null && can_be_root || return 0
    for package in "$@"; do
        is_installed "$package" && continue
        candidate=$(apt-cache policy "$package" 2>/dev/null | sed -n 's/^ *Candidate: //p')
        case $candidate in '' | '(none)') say "there is no package $package; tests that need it are skipped" && continue ;; esac
        (setup_install "$package") || say "$package could not be installed; tests that need it are skipped"
    done
}

has_onednn_3() {
    for header in /usr/include/oneapi/dnnl/dnnl_version.h /usr/local/include/oneapi/dnnl/dnnl_version.h \
        /usr/include/*/oneapi/dnnl/dnnl_version.h build/venv/include/oneapi/dnnl/dnnl_version.h; do
        [ -e "$header" ] && grep -q '^#define DNNL_VERSION_MAJOR 3' "$header" && return 0
    done
    return 1
}

# oneDNN 3: the system's where it has one (Debian 13, Ubuntu 24.04), else PyPI's in a virtual environment.
setup_onednn() {
    has_onednn_3 && return 0
    case $(apt-cache policy libdnnl-dev 2>/dev/null | sed -n 's/^ *Candidate: //p') in
    3.*)
        setup_install libdnnl-dev
        return 0
        ;;
    esac
    say "oneDNN 3 from PyPI into build/venv: $setup_onednn"
    { [ -x build/venv/bin/pip ] || /usr/bin/python3 -m venv build/venv; } >build/setup.log 2>&1 &&
        build/venv/bin/pip install --quiet --disable-pip-version-check $setup_onednn >build/setup.log 2>&1 || {
        tail -n 5 build/setup.log >&2
        die "oneDNN could not be installed"
    }
}

# The demo's images: 1,797 handwritten digits of 8x8 pixels, UCI's 'Optical Recognition of Handwritten Digits'
# (E. Alpaydin, C. Kaynak, 1998), as Debian's python3-sklearn carries them. Of the package only this file is
# taken, so nothing is installed.
setup_digits() {
    file=usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz
    [ -s build/digits/digits.csv.gz ] && return 0
    mkdir -p build/digits
    if [ -s "/$file" ]; then
        cp "/$file" build/digits/
        return 0
    fi
    command -v apt-get >/dev/null || return 1
    say "the digits (UCI, Optical Recognition of Handwritten Digits) out of Debian's package python3-sklearn"
    fetch_package python3-sklearn || { can_be_root && update_lists && fetch_package python3-sklearn; } || return 1
    dpkg-deb --fsys-tarfile build/digits/python3-sklearn_*.deb | tar -xO "./$file" >build/digits/part &&
        mv build/digits/part build/digits/digits.csv.gz
    rm -f build/digits/*.deb build/digits/part
}

fetch_package() {
    (cd build/digits && apt-get download -q -o APT::Sandbox::User=root "$1" >../setup.log 2>&1)
}

# setup PACKAGES...: everything; the packages named come on top of what a build needs.
setup() {
    mkdir -p build
    setup_install $setup_packages "$@"
    setup_onednn
}
